import { Mixer, type Range, squares } from "./sums";

// Runs for the milliseconds of its argument.
const end = Date.now() + Number(process.argv[2] ?? 2000);
const range: Range = { first: 0, last: 1e6 };
const mixer = new Mixer(7);
let total = 0;
while (Date.now() < end) {
    total += squares(range);
    total += mixer.mix(range);
}
console.log(total);
