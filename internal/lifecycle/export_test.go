package lifecycle

// ErrGraceOver is the cause of a hard stop after the grace period.
var ErrGraceOver = errGraceOver
