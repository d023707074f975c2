package importing

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxRecord bounds one CSV record in bytes, and thus the rows that an unclosed quote can take.
const maxRecord = 1 << 20

// errTooLong reports that a record exceeds maxRecord.
var errTooLong = errors.New("record too long")

// record is one CSV record, valid or not.
type record struct {
	line, last int // its first and last line, counted from 1
	fields     []string
	problem    string // the reason for missing fields, or ""
	raw        string // its bytes in the file without the line end, if it has a problem
}

// lines returns the lines of a record of several lines, as a prefix of a reason.
func (r record) lines() string {
	if r.last == r.line {
		return ""
	}
	return fmt.Sprintf("lines %d to %d are one record, perhaps by a stray quote: ", r.line, r.last)
}

// recordReader reads CSV by encoding/csv and retains the bytes of the current record.
//
// A record that encoding/csv refuses ends with the line of the problem, and reading continues with
// the next line. An unclosed quote is an error that ends the reading, because it makes one
// record of everything up to the next quote.
type recordReader struct {
	csv  *csv.Reader
	held heldBytes
	line int // the last line of the last record
}

func newRecordReader(source io.Reader) *recordReader {
	r := &recordReader{held: heldBytes{source: source}}
	r.csv = csv.NewReader(bufio.NewReaderSize(&r.held, 1<<16))
	r.csv.FieldsPerRecord = -1
	return r
}

// next returns the next record that is not a blank line. io.EOF ends the file. After another error
// the record that was being read is lost, since half of a row could pass for a whole one.
func (r *recordReader) next() (record, error) {
	fields, err := r.csv.Read()
	var refused *csv.ParseError
	if err != nil && !errors.As(err, &refused) {
		return record{}, r.failed(err)
	}
	ended := r.held.ended(r.csv.InputOffset())
	if refused != nil && ended && !errors.Is(r.held.err, io.EOF) {
		return record{}, r.failed(r.held.err)
	}
	raw := r.held.take(r.csv.InputOffset())
	text, blank := trimBlank(raw)
	rec := record{line: r.line + r.held.blank + blank + 1, fields: fields}
	r.held.blank = 0
	text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
	rec.last = rec.line + bytes.Count(text, []byte("\n"))
	if refused == nil {
		r.line = rec.last
		return rec, nil
	}
	if ended && errors.Is(refused, csv.ErrQuote) && bytes.Count(text, []byte(`"`))%2 == 1 {
		return record{}, fmt.Errorf(
			"the row that begins at line %d has a quote that is never closed; no row from there on was imported", rec.line)
	}
	r.line = rec.last
	rec.fields, rec.raw = nil, string(text)
	rec.problem = rec.lines() + "text after the closing quote of a field; double the quotes inside a quoted field"
	if errors.Is(refused, csv.ErrBareQuote) {
		rec.problem = rec.lines() + "a quote in the middle of a field; quote the whole field and double the quotes in it"
	}
	return rec, nil
}

// failed describes an error of the source.
func (r *recordReader) failed(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return io.EOF
	case !errors.Is(err, errTooLong):
		return fmt.Errorf("read the file: %w", err)
	case r.line == 0 && bytes.IndexByte(r.held.rest(), '\n') < 0 && bytes.IndexByte(r.held.rest(), '\r') >= 0:
		return errors.New(crAlone)
	}
	line := r.line + r.held.blank + 1
	return fmt.Errorf("the row that begins at line %d has more than %d bytes, perhaps by a quote that is not closed; no row "+
		"from there on was imported", line, maxRecord)
}

// crAlone is the problem of a file whose lines end in CR.
const crAlone = "its line ends are CR alone; save the file as CSV UTF-8, with line ends LF or CR LF"

// endsInCR reports whether a header is the beginning of a file whose lines end in CR.
func (r record) endsInCR() bool {
	return strings.Contains(r.raw, "\r") || strings.Contains(strings.Join(r.fields, ""), "\r")
}

// heldBytes passes its source on and retains the bytes of the record that is being read.
type heldBytes struct {
	source io.Reader
	bytes  []byte
	start  int   // of the record in bytes
	at     int64 // offset of bytes in the source
	blank  int   // blank lines dropped before the record
	err    error // of the source, or errTooLong
}

// Read implements io.Reader. The caller has used up all earlier bytes, so that those from start
// belong to one record and to blank lines before it.
func (h *heldBytes) Read(p []byte) (int, error) {
	h.drop(h.start)
	if len(h.bytes) > maxRecord {
		rest, blank := trimBlank(h.bytes)
		h.blank += blank
		h.drop(len(h.bytes) - len(rest))
		if len(h.bytes) > maxRecord {
			h.err = errTooLong
			return 0, h.err
		}
	}
	n, err := h.source.Read(p)
	h.bytes = append(h.bytes, p[:n]...)
	h.err = err
	return n, err
}

// drop removes n bytes from the beginning.
func (h *heldBytes) drop(n int) {
	h.bytes = h.bytes[:copy(h.bytes, h.bytes[n:])]
	h.at += int64(n)
	h.start = 0
}

// take returns the record that ends at an offset of the source, until the next Read.
func (h *heldBytes) take(end int64) []byte {
	from := h.start
	h.start = int(end - h.at)
	return h.bytes[from:h.start]
}

// rest returns the bytes after the last record that was taken.
func (h *heldBytes) rest() []byte { return h.bytes[h.start:] }

// ended reports whether the source has ended at an offset.
func (h *heldBytes) ended(offset int64) bool {
	return h.err != nil && offset == h.at+int64(len(h.bytes))
}

// trimBlank removes the blank lines at the beginning and returns their number.
func trimBlank(text []byte) (rest []byte, lines int) {
	for {
		switch {
		case bytes.HasPrefix(text, []byte("\n")):
			text = text[1:]
		case bytes.HasPrefix(text, []byte("\r\n")):
			text = text[2:]
		default:
			return text, lines
		}
		lines++
	}
}
