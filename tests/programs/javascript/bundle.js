function a(s){let t=0;for(let e=s.first;e<s.last;e++)t+=e*e;return t}var r=class{constructor(t){this.seed=t}seed;mix(t){let e=this.seed;for(let n=t.first;n<t.last;n++)e=(e^n)*31|0;return e}};var l=Date.now()+Number(process.argv[2]??2e3),i={first:0,last:1e6},m=new r(7),o=0;for(;Date.now()<l;)o+=a(i),o+=m.mix(i);console.log(o);
//# sourceMappingURL=bundle.js.map
