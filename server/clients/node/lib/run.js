// Ids at equal distances.

/** `first`, `first + stride`, ... `count` of them. Iterating over it yields each id. */
export class Run {
  constructor(first, count, stride) {
    this.first = first;
    this.count = count;
    this.stride = stride;
  }

  get last() {
    return this.first + BigInt(this.count - 1) * this.stride;
  }

  *[Symbol.iterator]() {
    let id = this.first;
    for (let left = this.count; left > 0; left -= 1) {
      yield id;
      id += this.stride;
    }
  }
}
