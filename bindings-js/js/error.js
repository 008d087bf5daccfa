// The one error class, and the texts of what JavaScript itself refuses.

export class AlkError extends Error {
  constructor(code, message, { cause, retryable = false, outcomeUnknown = false, owner } = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
    this.retryable = retryable;
    this.outcomeUnknown = outcomeUnknown;
    this.owner = owner;
  }
}
Object.defineProperty(AlkError.prototype, 'name', { value: 'AlkError', configurable: true, writable: true });

// In the order of `code` in src/error.rs.
export const CODES = [
  'INVALID_NAME',
  'RESERVED_NAME',
  'INVALID_ARGUMENT',
  'INVALID_DURATION',
  'CONFLICT',
  'LEASE_LOST',
  'CAPACITY',
  'DATABASE',
  'CLOSED',
  'SNAPSHOT',
  'VERSION',
];

export const invalid = (message, cause) => new AlkError('INVALID_ARGUMENT', message, { cause });

/** What a value is, for a message: never its content. */
export const kindOf = (value) => (value === null ? 'null' : Array.isArray(value) ? 'an array' : typeof value);
