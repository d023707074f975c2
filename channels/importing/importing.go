package importing

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
)

// Options are the settings of Import. The zero value is usable.
type Options struct {
	// BatchSize is the number of rows per transaction; 0 means 10,000.
	BatchSize int
	// BatchTimeout is the deadline of one transaction; 0 means one minute.
	BatchTimeout time.Duration
	// Columns maps names in the header of the file to the columns in the package comment. An empty
	// column leaves the file's column out.
	Columns map[string]string
	// Rejects receives the rejected rows as CSV, with the columns line and reason before the
	// columns of the file. After correction it can be imported. Without rejected rows
	// nothing is written. Nil discards rejected rows.
	Rejects io.Writer
	// Progress is called after each batch, from the importing goroutine.
	Progress func(Progress)
}

// Result counts the rows of a file by outcome. Inserted, Updated, Unchanged, Repeated and Rejected
// add up to Rows.
type Result struct {
	Rows      int64 `json:"rows"`      // rows read, without the header
	Inserted  int64 `json:"inserted"`  // new channels
	Updated   int64 `json:"updated"`   // existing channels that differed
	Unchanged int64 `json:"unchanged"` // existing channels that did not differ, and were not written
	// Repeated rows have a later row with the same external_id in the same batch, which won.
	// In another batch, the later row updates the channel and counts as Updated or Unchanged.
	Repeated int64 `json:"repeated"`
	Rejected int64 `json:"rejected"` // bad rows, written to Rejects
}

// Progress is the state of an import after a batch.
type Progress struct {
	Result
	Bytes int64 // read from the reader, before decompression
}

// maxBatchAttempts limits the attempts of a batch after transient errors.
const maxBatchAttempts = 5

// Import upserts channels from CSV, plain or gzip, into belfry.channels by
// external_id. The package comment describes the file.
//
// Each batch is one transaction, and a repeated import is safe: unchanged rows
// are not written again. A bad row is written to the rejects, and the other rows are
// imported. If PostgreSQL rejects a row, the batch is halved until that row is alone.
// Transient errors, such as a lost connection, repeat the batch up to five times.
//
// A bad header, an unreadable or truncated file, a full disk or a canceled context ends the
// import with an error that contains the line. Whole rows before the cut of a truncated file
// are imported, and the result counts the committed rows. The error is channels.ErrNotOwn if
// channels.relation is not belfry.channels.
func Import(ctx context.Context, store *channels.Store, db channels.Beginner, r io.Reader, opts Options) (Result, error) {
	if !store.Own() {
		return Result{}, fmt.Errorf("channels: import: %w, and channels.relation is %s", channels.ErrNotOwn, store.Relation())
	}
	if opts.BatchSize <= 0 {
		opts.BatchSize = 10000
	}
	if opts.BatchTimeout <= 0 {
		opts.BatchTimeout = time.Minute
	}
	counter := &countingReader{source: r}
	text, err := decodeText(counter)
	if err != nil {
		return Result{}, fmt.Errorf("channels: import: %w", err)
	}
	im := &importer{db: db, opts: opts, reader: newRecordReader(text), counter: counter, parser: rowParser{zones: knownZones{}}}
	if err := im.readHeader(ctx); err != nil {
		return Result{}, fmt.Errorf("channels: import: %w", err)
	}
	if err := im.run(ctx); err != nil {
		return im.result, fmt.Errorf("channels: import stopped at line %d, %d rows inserted and %d updated before: %w",
			im.reader.line, im.result.Inserted, im.result.Updated, err)
	}
	return im.result, nil
}

// countingReader counts the bytes read through it.
type countingReader struct {
	source io.Reader
	bytes  int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.source.Read(p)
	c.bytes += int64(n)
	return n, err
}

// decodeText decompresses gzip, recognised by its first bytes, and drops a byte order mark.
func decodeText(r io.Reader) (io.Reader, error) {
	b := bufio.NewReader(r)
	if head, _ := b.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, fmt.Errorf("read gzip: %w", err)
		}
		b = bufio.NewReader(z)
	}
	head, _ := b.Peek(4)
	for magic, kind := range map[string]string{"PK\x03\x04": "a zip archive, such as .xlsx or .ods", "\xd0\xcf\x11\xe0": "an .xls workbook",
		"BZh": "compressed by bzip2", "\xfd7zX": "compressed by xz", "\x28\xb5\x2f\xfd": "compressed by zstd"} {
		if bytes.HasPrefix(head, []byte(magic)) {
			return nil, fmt.Errorf("the file is %s; allowed values: CSV UTF-8, as it is or compressed by gzip", kind)
		}
	}
	switch {
	case bytes.HasPrefix(head, []byte{0xff, 0xfe}) || bytes.HasPrefix(head, []byte{0xfe, 0xff}):
		return nil, errors.New("the file is UTF-16; save it as CSV UTF-8")
	case bytes.HasPrefix(head, []byte{0xef, 0xbb, 0xbf}):
		if _, err := b.Discard(3); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// importer is one import.
type importer struct {
	db      channels.Beginner
	opts    Options
	reader  *recordReader
	counter *countingReader
	parser  rowParser
	result  Result
	again   bool // the file is a file of rejects
	rejects *text.CSV
}

func (im *importer) readHeader(ctx context.Context) error {
	rec, err := im.reader.next()
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("the file is empty; its first row must name the columns: " + columnNames)
	case err != nil:
		return fmt.Errorf("read the header: %w", err)
	case rec.endsInCR():
		return fmt.Errorf("line %d: %s", rec.line, crAlone)
	case rec.problem != "":
		return fmt.Errorf("line %d: %s", rec.line, rec.problem)
	}
	im.again = len(rec.fields) > 1 && rec.fields[0] == "line" && rec.fields[1] == "reason"
	im.unguard(rec.fields)
	if im.parser.header, err = parseHeader(rec.fields, im.opts.Columns); err != nil {
		return fmt.Errorf("line %d: %w", rec.line, err)
	}
	if err := im.db.QueryRow(ctx, queries.platformNames).Scan(&im.parser.platforms); err != nil {
		return fmt.Errorf("read the platforms: %w", channels.Explain(err))
	}
	return nil
}

// unguard removes the apostrophes before formulas from the cells of a file of rejects.
func (im *importer) unguard(cells []string) {
	if !im.again {
		return
	}
	for i, cell := range cells {
		cells[i] = text.Unguarded(cell)
	}
}

// run imports batch by batch. Rows before an error of the source are imported before run returns the error.
func (im *importer) run(ctx context.Context) error {
	for {
		batch, readErr := im.readBatch()
		if err := im.write(ctx, batch); err != nil {
			return err
		}
		if err := im.flushRejects(); err != nil {
			return err
		}
		if im.opts.Progress != nil {
			im.opts.Progress(Progress{Result: im.result, Bytes: im.counter.bytes})
		}
		switch {
		case errors.Is(readErr, io.EOF):
			return nil
		case readErr != nil:
			return readErr
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
	}
}

// readBatch reads up to BatchSize rows and returns the valid ones. The last of several rows with the same
// external_id remains. Rejected rows count too, so that each batch reads a bounded part of the file.
func (im *importer) readBatch() ([]channelRow, error) {
	batch := make([]channelRow, 0, im.opts.BatchSize)
	at := make(map[string]int, im.opts.BatchSize)
	for range im.opts.BatchSize {
		rec, err := im.reader.next()
		if err != nil {
			return batch, err
		}
		im.result.Rows++
		if rec.problem != "" {
			if err := im.reject(rec.line, rec.problem, []string{rec.raw}); err != nil {
				return batch, err
			}
			continue
		}
		im.unguard(rec.fields)
		row, reason := im.parser.parse(rec)
		if reason != "" {
			if err := im.reject(rec.line, rec.lines()+reason, rec.fields); err != nil {
				return batch, err
			}
			continue
		}
		if i, repeated := at[row.externalID]; repeated {
			im.result.Repeated++
			batch[i] = row
			continue
		}
		at[row.externalID] = len(batch)
		batch = append(batch, row)
	}
	return batch, nil
}

// reject writes one row to the rejects, and the header before the first row. The fields retain their bytes,
// valid UTF-8 or not, so that the user can convert the encoding of the file of rejects.
func (im *importer) reject(line int, reason string, fields []string) error {
	im.result.Rejected++
	if im.opts.Rejects == nil {
		return nil
	}
	if im.rejects == nil {
		im.rejects = text.NewCSV(im.opts.Rejects)
		if err := im.rejects.Row(append([]string{"line", "reason"}, im.originals(im.parser.header.names)...)...); err != nil {
			return fmt.Errorf("write rejects: %w", err)
		}
	}
	out := append([]string{strconv.Itoa(line), reason}, im.originals(fields)...)
	if err := im.rejects.Row(out...); err != nil {
		return fmt.Errorf("write rejects: %w", err)
	}
	return nil
}

// originals drops the columns line and reason of a file of rejects, so that they do not accumulate.
func (im *importer) originals(fields []string) []string {
	if len(fields) != len(im.parser.header.names) {
		return fields
	}
	kept := make([]string, 0, len(fields))
	for i, f := range fields {
		if name := im.parser.header.names[i]; name != "line" && name != "reason" {
			kept = append(kept, f)
		}
	}
	return kept
}

func (im *importer) flushRejects() error {
	if im.rejects == nil {
		return nil
	}
	if err := im.rejects.Flush(); err != nil {
		return fmt.Errorf("write rejects: %w", err)
	}
	return nil
}

// write commits rows. It halves them around a row that PostgreSQL rejects.
func (im *importer) write(ctx context.Context, rows []channelRow) error {
	if len(rows) == 0 {
		return nil
	}
	inserted, updated, err := im.writeRepeatedly(ctx, rows)
	switch {
	case err == nil:
		im.result.Inserted += inserted
		im.result.Updated += updated
		im.result.Unchanged += int64(len(rows)) - inserted - updated
		return nil
	case !refused(err):
		return channels.Explain(err)
	case len(rows) == 1:
		var pg *pgconn.PgError
		errors.As(err, &pg) // refused has checked that it is a PgError
		return im.reject(rows[0].line, "PostgreSQL refuses it: "+pg.Message, rows[0].fields)
	}
	half := len(rows) / 2
	if err := im.write(ctx, rows[:half]); err != nil {
		return err
	}
	return im.write(ctx, rows[half:])
}

// writeRepeatedly repeats writeOnce after transient errors. The outcome of a lost COMMIT is unknown. A
// repetition is right in both cases, because the rows are upserted, but committed rows then count as unchanged.
func (im *importer) writeRepeatedly(ctx context.Context, rows []channelRow) (inserted, updated int64, err error) {
	for attempt := 1; ; attempt++ {
		inserted, updated, err = im.writeOnce(ctx, rows)
		if err == nil || ctx.Err() != nil || refused(err) || !transient(err) || attempt == maxBatchAttempts {
			return inserted, updated, err
		}
		pause := time.NewTimer(100 * time.Millisecond << attempt)
		select {
		case <-ctx.Done():
			pause.Stop()
			return 0, 0, context.Cause(ctx)
		case <-pause.C:
		}
	}
}

func (im *importer) writeOnce(ctx context.Context, rows []channelRow) (inserted, updated int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, im.opts.BatchTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, im.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, queries.importTable); err != nil {
			return err
		}
		source := pgx.CopyFromSlice(len(rows), func(i int) ([]any, error) { return rows[i].values(), nil })
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"pg_temp", "belfry_import"}, tableColumns(), source); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, queries.importInsert)
		if err != nil {
			return err
		}
		inserted = tag.RowsAffected()
		tag, err = tx.Exec(ctx, queries.importUpdate, pgx.StrictNamedArgs{"columns": im.parser.header.names})
		if err != nil {
			return err
		}
		updated = tag.RowsAffected()
		return nil
	})
	return inserted, updated, err
}

// refused reports whether PostgreSQL will always reject these rows: data exceptions,
// constraint violations, a value too large for a type or an index.
func refused(err error) bool { return db.ClassOf(err).OfRows() }

// transient reports whether a repetition may succeed: after a lost connection, a conflict with
// another transaction, a server restart.
func transient(err error) bool { return db.ClassOf(err).Passes() }
