// Sums, written so that each takes a while.

export interface Range {
    first: number;
    last: number;
}

export function squares(range: Range): number {
    let sum = 0;
    for (let i = range.first; i < range.last; i++) {
        sum += i * i;
    }
    return sum;
}

export class Mixer {
    constructor(private seed: number) {}

    mix(range: Range): number {
        let mixed = this.seed;
        for (let i = range.first; i < range.last; i++) {
            mixed = (mixed ^ i) * 31 | 0;
        }
        return mixed;
    }
}
