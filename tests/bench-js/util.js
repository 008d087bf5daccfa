// Stands in for Node's `util` in a page: a peer's error classes want it, and no job here makes an error.
export const format = (...parts) => parts.join(' ');
