'use strict';
// Knows its own stacks. Runs each of some chains of calls for a while, from the outermost function to a leaf that burns CPU. Prints a line of JSON
// for each chain: the functions of the leaf's stack, innermost first, as [name, file, line]. A line of 0: native.
//
//   node stacks.js SECONDS ROUNDS [DEPTH]      so many for each chain, and in each call of its leaf. With few rounds, V8 optimises all functions,
//                                              and inlines the small ones. DEPTH: how often `recursive` calls itself, 20 if not said.

Error.stackTraceLimit = Infinity;
Error.prepareStackTrace = (_, sites) =>
    sites.map((site) => [site.getFunctionName() ?? '', site.getFileName() ?? '', site.getLineNumber() ?? 0]);

const seconds = Number(process.argv[2] ?? 1);
const rounds = Number(process.argv[3] ?? 3_000_000);
const deepest = Number(process.argv[4] ?? 20);
let told = null;

// Burns CPU in one line.
function leaf(rounds) { let sum = 0; for (let i = 0; i < rounds; i++) sum = (sum * 31 + i) | 0; if (told === null) told = new Error().stack; return sum; }

function outer(rounds) {
    return (
        // The call is on a line of its own.
        inner(rounds)
    );
}

function inner(rounds) {
    const local = { rounds };
    return leaf(local.rounds) + 1;
}

class Shop {
    constructor(rounds) { this.rounds = rounds; }
    sell() { return leaf(this.rounds); }
    get total() { return this.sell(); }
    static of(rounds) { return new Shop(rounds).total; }
}

function recursive(depth, rounds) {
    return depth === 0 ? leaf(rounds) : recursive(depth - 1, rounds) + 1;
}

function withMany(rounds) {
    // More variables than V8 lists one by one.
    let a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, c0, c1, c2, c3, c4, c5, c6, c7, c8, c9,
        d0, d1, d2, d3, d4, d5, d6, d7, d8, d9, e0, e1, e2, e3, e4, e5, e6, e7, e8, e9, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9,
        g0, g1, g2, g3, g4, g5, g6, g7, g8, g9, h0, h1, h2, h3, h4, h5, h6, h7, h8, h9;
    const all = () => [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, c0, c1, c2, c3, c4, c5, c6, c7,
        c8, c9, d0, d1, d2, d3, d4, d5, d6, d7, d8, d9, e0, e1, e2, e3, e4, e5, e6, e7, e8, e9, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9,
        g0, g1, g2, g3, g4, g5, g6, g7, g8, g9, h0, h1, h2, h3, h4, h5, h6, h7, h8, h9];
    a0 = h9 = leaf(rounds);
    return all().length + a0;
}

const expressions = { quick: function (rounds) { return leaf(rounds); }, 'größe π': (rounds) => leaf(rounds) };
const generated = new Function('leaf', 'rounds', 'return leaf(rounds);');

function* steps(rounds) { yield leaf(rounds); }

const chains = {
    outer: (rounds) => outer(rounds),
    getter: (rounds) => Shop.of(rounds),
    recursive: (rounds) => recursive(deepest, rounds),
    map: (rounds) => [1].map((one) => one + leaf(rounds))[0],
    sort: (rounds) => [2, 1].sort(() => leaf(rounds)),
    many: (rounds) => withMany(rounds),
    named: (rounds) => expressions.quick(rounds),
    unicode: (rounds) => expressions['größe π'](rounds),
    generated: (rounds) => generated(leaf, rounds),
    generator: (rounds) => [...steps(rounds)],
    apply: (rounds) => Reflect.apply(outer, null, [rounds]),
    replace: (rounds) => 'x'.replace(/x/, () => leaf(rounds)),
};

// A callback's stack has none of the functions that load modules, so it is short.
setImmediate(() => {
    for (const [name, chain] of Object.entries(chains)) {
        told = null;
        const end = process.cpuUsage().user + seconds * 1e6;
        while (process.cpuUsage().user < end) for (let calls = 0; calls < 3_000_000 / rounds; calls++) chain(rounds);
        console.log(JSON.stringify([name, told]));
    }
});
