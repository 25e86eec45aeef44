'use strict';
// Runs some functions of different shares for so many seconds: recursion, loops that V8 inlines, closures, objects, strings and V8's own functions.
//
//   node shares.js SECONDS

function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
function isPrime(n) { for (let d = 2; d * d <= n; d++) if (n % d === 0) return false; return true; }
function countPrimes(upTo) { let count = 0; for (let n = 2; n < upTo; n++) if (isPrime(n)) count++; return count; }
class Tree { constructor(v) { this.v = v; this.l = this.r = null; } insert(v) { if (v < this.v) { if (this.l) this.l.insert(v); else this.l = new Tree(v); } else if (this.r) this.r.insert(v); else this.r = new Tree(v); } sum() { return this.v + (this.l ? this.l.sum() : 0) + (this.r ? this.r.sum() : 0); } }
function trees(n) { let s = 7; const t = new Tree(50); for (let i = 0; i < n; i++) { s = (s * 1103515245 + 12345) & 0x7fffffff; t.insert(s % 1000); } return t.sum(); }
function words(n) { const m = new Map(); for (let i = 0; i < n; i++) { const k = 'w' + (i % 97); m.set(k, (m.get(k) || 0) + 1); } return [...m.entries()].sort((a, b) => b[1] - a[1]).map(([k, v]) => k + v).join(); }
function matrix(n) { const a = new Float64Array(n * n).fill(1.5), c = new Float64Array(n * n); for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) { let s = 0; for (let k = 0; k < n; k++) s += a[i * n + k] * a[k * n + j]; c[i * n + j] = s; } return c[n]; }
function json(n) { let t = 0; for (let i = 0; i < n; i++) t += JSON.parse(JSON.stringify({ a: [i, 2, 3], b: { c: 'x' } })).a[0]; return t; }
function parse(s) { let p = 0; const num = () => { let v = 0; while (p < s.length && s.charCodeAt(p) >= 48) v = v * 10 + s.charCodeAt(p++) - 48; return v; }; const term = () => { let v = num(); while (s[p] === '*') { p++; v *= num(); } return v; }; let v = term(); while (s[p] === '+') { p++; v += term(); } return v; }
const end = Date.now() + Number(process.argv[2] ?? 5) * 1000; let s = 0;
const text = Array.from({ length: 500 }, (_, i) => i + '*' + (i + 1)).join('+');
// Each of them runs for many milliseconds: rounds that are nearly as long as a profiler's period would show it one of them too often.
while (Date.now() < end) {
  for (let i = 0; i < 100; i++) s += fib(22);
  for (let i = 0; i < 100; i++) s += countPrimes(9000);
  for (let i = 0; i < 100; i++) s += trees(4000);
  for (let i = 0; i < 100; i++) s += words(6000).length;
  for (let i = 0; i < 100; i++) s += matrix(60);
  for (let i = 0; i < 100; i++) s += json(400);
  for (let i = 0; i < 2000; i++) s += parse(text);
}
console.log(s);
