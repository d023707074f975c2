package outbox

import (
	"context"
	"encoding/binary"
	"io"

	"github.com/jackc/pgx/v5"
)

// copyRows streams n rows of fixed-width columns in PostgreSQL's binary COPY format. pgx's own CopyFrom
// prepares a statement for each call and boxes every value. Here each value has 8 bytes and chunks are
// short, so that both costs would be noticeable. The format is documented in the PostgreSQL manual, "COPY",
// "Binary Format".
type copyRows struct {
	n, columns int
	rowBytes   int // field count, then per column its length and its value
	row        func(i int, b []byte) []byte

	next int    // the next row to encode
	buf  []byte // encoded, not read yet
	all  []byte // the buffer behind buf
	done bool   // the trailer is in buf or read
}

// copyBuffer is the buffer size, equal to the size of one message of pgconn.
const copyBuffer = 64 << 10

const (
	copyHeader  = "PGCOPY\n\xff\r\n\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" // signature, flags, no extension
	copyTrailer = "\xff\xff"                                                       // a field count of -1
)

func newCopyRows(n, columns, valueBytes int) *copyRows {
	r := &copyRows{n: n, columns: columns, rowBytes: 2 + 4*columns + valueBytes}
	size := min(copyBuffer, len(copyHeader)+n*r.rowBytes+len(copyTrailer))
	r.all = make([]byte, 0, max(size, len(copyHeader)+r.rowBytes+len(copyTrailer)))
	r.buf = append(r.all, copyHeader...)
	return r
}

// send copies the rows with the given COPY statement; row appends the encoded
// values of row i to b.
func (r *copyRows) send(ctx context.Context, tx pgx.Tx, statement string, row func(i int, b []byte) []byte) (int64, error) {
	r.row = row
	tag, err := tx.Conn().PgConn().CopyFrom(ctx, r, statement)
	return tag.RowsAffected(), err
}

// Read implements io.Reader for pgconn.
func (r *copyRows) Read(p []byte) (int, error) {
	if len(r.buf) == 0 {
		if r.done {
			return 0, io.EOF
		}
		r.fill()
	}
	n := copy(p, r.buf)
	r.buf = r.buf[n:]
	return n, nil
}

// fill encodes as many rows as the buffer holds, and the trailer after the last.
func (r *copyRows) fill() {
	b := r.all[:0]
	for r.next < r.n && len(b)+r.rowBytes <= cap(b) {
		b = binary.BigEndian.AppendUint16(b, uint16(r.columns)) //nolint:gosec // two to four
		b = r.row(r.next, b)
		r.next++
	}
	if r.next == r.n && len(b)+len(copyTrailer) <= cap(b) {
		b = append(b, copyTrailer...)
		r.done = true
	}
	r.buf = b
}

func appendInt64(b []byte, v int64) []byte {
	b = append(b, 0, 0, 0, 8)
	return binary.BigEndian.AppendUint64(b, uint64(v)) //nolint:gosec // two's complement is the format
}
