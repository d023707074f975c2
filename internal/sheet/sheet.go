// Package sheet writes rows for spreadsheets and for programs that cut columns: CSV as RFC
// 4180 has it, lines ending in LF, whose cells no spreadsheet takes for formulas.
//
// The columns are the fields that a record has in JSON ([RecordsOf]), so that they have one
// name everywhere. They follow from the type: a list of nothing has the same headings as a
// long one, and what is left out of the JSON is an empty cell.
//
// # Invariants
//
//  1. No cell begins as a formula does ([Guarded]), whoever wrote what is in it.
//  2. [Unguarded] of a guarded cell is the cell, so that a file can be read back.
package sheet

import (
	"encoding/csv"
	"io"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"
)

// formulas are the characters that spreadsheets take for the beginning of a formula, or that
// they step over before they look for one (OWASP, CSV Injection).
const formulas = "=+-@\t\r\n＝＋－＠"

// number matches what a spreadsheet reads as a number, though it begins with a sign.
var number = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$`)
})

// Guarded is a cell that no spreadsheet takes for a formula: one that begins as a formula does,
// after blanks or not, gets an apostrophe before it. Numbers are as they are. A cell that has
// such an apostrophe already gets another, so that Unguarded knows which one to take away.
func Guarded(cell string) string {
	start, _ := utf8.DecodeRuneInString(strings.TrimLeft(cell, "' "))
	if !strings.ContainsRune(formulas, start) || number().MatchString(strings.TrimLeft(cell, "'")) {
		return cell
	}
	return "'" + cell
}

// Unguarded is the cell of which Guarded made another.
func Unguarded(cell string) string {
	if bare, quoted := strings.CutPrefix(cell, "'"); quoted && Guarded(bare) == cell {
		return bare
	}
	return cell
}

// Writer writes guarded rows. Flush has to be called at the end.
type Writer struct{ csv *csv.Writer }

// NewWriter returns a writer without rows.
func NewWriter(w io.Writer) *Writer { return &Writer{csv.NewWriter(w)} }

// Row writes a row.
func (w *Writer) Row(cells ...string) error {
	guarded := make([]string, len(cells))
	for i, cell := range cells {
		guarded[i] = Guarded(cell)
	}
	return w.csv.Write(guarded)
}

// Flush hands over what was written, and returns the first error of all.
func (w *Writer) Flush() error {
	w.csv.Flush()
	return w.csv.Error()
}
