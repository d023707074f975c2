package text

import (
	"encoding/csv"
	"io"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"
)

// formulas are the characters with which spreadsheets begin a formula, or which they skip before
// one (OWASP, CSV Injection).
const formulas = "=+-@\t\r\n＝＋－＠"

// number matches numbers, which may begin with a sign.
var number = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$`)
})

// Guarded returns a cell that no spreadsheet interprets as a formula. A cell that begins like a
// formula, after blanks or without, gets an apostrophe in front. Numbers stay. A cell that has such
// an apostrophe already gets another, which Unguarded removes.
func Guarded(cell string) string {
	start, _ := utf8.DecodeRuneInString(strings.TrimLeft(cell, "' "))
	if !strings.ContainsRune(formulas, start) || number().MatchString(strings.TrimLeft(cell, "'")) {
		return cell
	}
	return "'" + cell
}

// Unguarded returns the cell from which Guarded made its argument.
func Unguarded(cell string) string {
	if bare, quoted := strings.CutPrefix(cell, "'"); quoted && Guarded(bare) == cell {
		return bare
	}
	return cell
}

// CSV writes guarded rows as RFC 4180 specifies them, with lines that end in LF. Flush must be called
// at the end.
type CSV struct{ csv *csv.Writer }

// NewCSV returns a writer without rows.
func NewCSV(w io.Writer) *CSV { return &CSV{csv.NewWriter(w)} }

// Row writes a row.
func (w *CSV) Row(cells ...string) error {
	guarded := make([]string, len(cells))
	for i, cell := range cells {
		guarded[i] = Guarded(cell)
	}
	return w.csv.Write(guarded)
}

// Flush writes buffered rows and returns the first error of all writes.
func (w *CSV) Flush() error {
	w.csv.Flush()
	return w.csv.Error()
}
