package migrations

import "io/fs"

// Of returns c with other migration files.
func (c Config) Of(files fs.FS) Config {
	c.files = files
	return c
}

// LocksOf returns the locks that the text of a migration declares.
func LocksOf(text string) []Lock { return locksOf(text) }

// StatementsOf returns the statements of a migration without a transaction.
func StatementsOf(text string) []string { return statementsOf(text) }

// Strength orders the modes of locks. It is 0 for modes that are not declared.
func Strength(mode string) int {
	for i, l := range lockBlocks {
		if l.mode == mode {
			return i + 1
		}
	}
	return 0
}
