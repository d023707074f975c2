package cursor

// Page is what one step of a walk read: the rows that matched, in key order, and
// how far the walk looked to find them.
type Page[R any] struct {
	// Rows are the matching rows; none when nothing in the stretch matched.
	Rows []R
	// Read is how many keys were examined, matching or not. Zero means that no key
	// is left between the cursor and the bound: the walk is exhausted.
	Read int
	// Next is the last key examined: where the cursor moves when the page's rows
	// are committed. It is meaningless when Read is zero.
	Next Position
}
