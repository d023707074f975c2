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

// Options are the collaborators and limits of Import. The zero value is
// usable.
type Options struct {
	// BatchSize is how many rows one transaction takes; 0 means 10,000.
	BatchSize int
	// BatchTimeout is the deadline of one transaction; 0 means one minute.
	BatchTimeout time.Duration
	// Columns says of columns of the file, by the names in its header, which of the
	// columns that the package comment lists they are; empty leaves one out.
	Columns map[string]string
	// Rejects receives the rows that were not imported as CSV, headed line,
	// reason and then the columns of the file: fixed, it can be imported as it
	// is. Nothing is written when nothing is rejected. nil discards them.
	Rejects io.Writer
	// Progress is called after each batch, from the importing goroutine.
	Progress func(Progress)
}

// Result counts what became of the rows of a file. Inserted, Updated,
// Unchanged, Repeated and Rejected add up to Rows.
type Result struct {
	Rows      int64 `json:"rows"`      // rows read, without the header
	Inserted  int64 `json:"inserted"`  // new channels
	Updated   int64 `json:"updated"`   // existing channels that differed
	Unchanged int64 `json:"unchanged"` // existing channels that did not, and were not written
	// Repeated rows were followed by another with the same external_id within the
	// same batch; the last one won. Further apart, the later row updates what the
	// earlier one wrote and counts as Updated or Unchanged.
	Repeated int64 `json:"repeated"`
	Rejected int64 `json:"rejected"` // bad rows, in the file of rejects
}

// Progress is how far an import has come.
type Progress struct {
	Result
	Bytes int64 // of the reader, compressed if it is
}

// maxBatchAttempts is how often a batch is tried when the errors are ones that a
// repetition can fix.
const maxBatchAttempts = 5

// Import upserts channels from CSV, plain or gzip, into belfry.channels by
// external_id. The package comment describes the file.
//
// Each batch is a transaction of its own, and repeating an import is safe: rows
// that are there already are not written again. A bad row goes to the rejects
// and keeps nothing else from being imported; when the database itself refuses
// a row, the batch is halved until that row is found. Errors that a repetition
// can fix, a lost connection among them, repeat the batch up to five times.
//
// An error ends the import early: a bad header, an unreadable or truncated file
// (whole rows before the cut are imported), a full disk, the context's end. The
// result then counts what was committed, and the error says at which line. It
// is channels.ErrNotOwn when channels.relation is not belfry.channels.
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

// decodeText undoes gzip, known by its magic bytes, and drops a byte order mark.
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
	again   bool // the file is one of rejects
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

// unguard takes from the cells of a file of rejects what keeps them from being formulas.
func (im *importer) unguard(cells []string) {
	if !im.again {
		return
	}
	for i, cell := range cells {
		cells[i] = text.Unguarded(cell)
	}
}

// run imports batch by batch. An error of the source comes after the rows before
// it have been imported.
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

// readBatch reads up to BatchSize rows that are good and differ in external_id;
// of repeated ones the last stays. Rejected rows count too, so that a file of
// nothing else is read in bounded steps.
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

// reject writes one row to the rejects, under a header the first time. The fields have the
// bytes that they have in the file, valid UTF-8 or not: a file of rejects is refused for the
// same reason as the row, and can be converted from its encoding.
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

// originals drops the line and reason columns of a file of rejects that is
// imported again, so that they do not pile up.
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

// write commits rows, halving them around one that the database refuses.
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
		errors.As(err, &pg) // refused says that it is one
		return im.reject(rows[0].line, "PostgreSQL refuses it: "+pg.Message, rows[0].fields)
	}
	half := len(rows) / 2
	if err := im.write(ctx, rows[:half]); err != nil {
		return err
	}
	return im.write(ctx, rows[half:])
}

// writeRepeatedly is writeOnce, again after errors that a repetition can fix.
// The outcome of a lost COMMIT is unknown; the rows are upserted, so doing it
// again is right either way, but the count then says unchanged.
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

// refused reports that the database will never take these rows: data exceptions,
// constraint violations, a value too large for a type or an index.
func refused(err error) bool { return db.ClassOf(err).OfRows() }

// transient reports an error that doing the same again may not meet: a lost
// connection, a conflict with another transaction, a server that restarts.
func transient(err error) bool { return db.ClassOf(err).Passes() }
