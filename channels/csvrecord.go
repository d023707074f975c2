package channels

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// maxRecord bounds one CSV record, and thus the memory a stray quote can take.
const maxRecord = 1 << 20

// record is one CSV record or what cannot be one.
type record struct {
	line   int            // where it begins, from 1
	fields []string       // nil when problem is set
	lines  []physicalLine // what it was read from; at least one
	// problem says why there are no fields.
	problem string
}

// raw is the text of the record's first line.
func (r record) raw() string {
	return r.lines[0].text
}

// physicalLine is one line of the file. One above maxRecord is kept by its
// first hundred bytes, to be shown, not read.
type physicalLine struct {
	text string
	long bool
}

// recordReader reads RFC 4180 records and never loses its place: encoding/csv
// takes everything up to the next quote, or the end of the file, as part of a
// field whose quote is not closed. Here such a record is rejected by its first
// line alone and reading goes on with the second.
type recordReader struct {
	source  *bufio.Reader
	pending []physicalLine // lines given back, the next one first
	line    int            // number of the line last taken
	err     error          // of the source, after the last whole line
}

func newRecordReader(r io.Reader) *recordReader {
	return &recordReader{source: bufio.NewReaderSize(r, 1<<16)}
}

// takeLine returns the next line without its end. io.EOF ends the file; another
// error is the source's, and a line it cut off is not returned: half a row could
// pass for a whole one.
func (r *recordReader) takeLine() (physicalLine, error) {
	if len(r.pending) > 0 {
		line := r.pending[0]
		r.pending = r.pending[1:]
		r.line++
		return line, nil
	}
	if r.err != nil {
		return physicalLine{}, r.err
	}
	var text []byte
	long := false
	for {
		part, err := r.source.ReadSlice('\n')
		if long = long || len(text)+len(part) > maxRecord; long {
			text = append(text, part...)[:min(len(text)+len(part), 100)]
		} else {
			text = append(text, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if errors.Is(err, io.EOF) {
			r.err = io.EOF
			if len(text) == 0 {
				return physicalLine{}, io.EOF
			}
		} else if err != nil {
			r.err = fmt.Errorf("read the file: %w", err)
			return physicalLine{}, r.err
		}
		break
	}
	r.line++
	text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
	return physicalLine{text: string(text), long: long}, nil
}

// giveBack returns all lines of a record but the first.
func (r *recordReader) giveBack(rec record) {
	rest := rec.lines[1:]
	r.pending = slices.Concat(rest, r.pending)
	r.line -= len(rest)
}

// next returns the next record that is not a blank line. A record with a problem
// is its first line; the lines after it have been given back.
func (r *recordReader) next() (record, error) {
	for {
		first, err := r.takeLine()
		if err != nil {
			return record{}, err
		}
		rec := record{line: r.line, lines: []physicalLine{first}}
		switch {
		case first.long:
			rec.problem = fmt.Sprintf("the line is longer than %d bytes; only its beginning is here: take line %d from the imported file", maxRecord, r.line)
			return rec, nil
		case first.text == "":
			continue
		}
		if rec.problem = r.complete(&rec); rec.problem != "" {
			r.giveBack(rec)
		}
		return rec, nil
	}
}

// complete reads the fields of a record that begins with its first line, and
// the lines they take. It returns the problem if it is no record.
func (r *recordReader) complete(rec *record) string {
	var p fieldParser
	size := 0
	for line := rec.lines[0]; ; {
		if size += len(line.text) + 1; line.long || size > maxRecord {
			return fmt.Sprintf("a quote is opened and not closed within %d bytes", maxRecord)
		}
		if !p.feed(line.text) {
			break
		}
		var err error
		if line, err = r.takeLine(); err != nil {
			return "a quote is opened and never closed"
		}
		rec.lines = append(rec.lines, line)
	}
	if p.problem == "" {
		rec.fields = p.fields
	}
	return p.problem
}

// fieldParser splits one record, fed line by line.
type fieldParser struct {
	fields  []string
	field   strings.Builder
	quoted  bool // inside a quoted field
	problem string
}

// feed takes the next line and reports whether the record goes on in another.
func (p *fieldParser) feed(line string) (more bool) {
	i := 0
	for {
		if !p.quoted {
			if i < len(line) && line[i] == '"' {
				p.quoted = true
				i++
			} else {
				end := strings.IndexByte(line[i:], ',')
				text := line[i:]
				if end >= 0 {
					text = line[i : i+end]
				}
				if at := strings.IndexByte(text, '"'); at >= 0 {
					p.problem = fmt.Sprintf("a quote in the middle of field %d; quote the whole field and double the quotes in it", len(p.fields)+1)
					return false
				}
				p.fields = append(p.fields, text)
				if end < 0 {
					return false
				}
				i += end + 1
				continue
			}
		}
		at := strings.IndexByte(line[i:], '"')
		if at < 0 {
			p.field.WriteString(line[i:])
			p.field.WriteByte('\n')
			return true
		}
		p.field.WriteString(line[i : i+at])
		i += at + 1
		switch {
		case i < len(line) && line[i] == '"':
			p.field.WriteByte('"')
			i++
		case i == len(line):
			p.close()
			return false
		case line[i] == ',':
			p.close()
			i++
		default:
			p.problem = fmt.Sprintf("text after the closing quote of field %d; double the quotes inside a quoted field", len(p.fields)+1)
			return false
		}
	}
}

// close ends the quoted field.
func (p *fieldParser) close() {
	p.fields = append(p.fields, p.field.String())
	p.field.Reset()
	p.quoted = false
}
