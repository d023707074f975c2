package job

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/cursor"
)

// Source says who: it begins walks over the recipients of a job, in the order of
// a keyset. R is what one recipient looks like to the Writer: channels.Channel,
// a bare id, a row of the user's own.
//
// Every query belongs on tx, which has the run's deadlines set; tx is the
// transaction that freezes the bound or opens the walk, not a chunk's.
type Source[R any] interface {
	// Keyset is the order of the walk. It encodes the job's cursor and bound.
	Keyset() cursor.Keyset
	// Bound returns the highest key there is now, or the zero Position when there is
	// no recipient at all. It is asked once in a job's life, at its first claim.
	Bound(ctx context.Context, tx pgx.Tx, j Job) (cursor.Position, error)
	// Open begins one run's walk of the keys in (after, bound]. The zero after is the
	// start.
	Open(ctx context.Context, tx pgx.Tx, j Job, after, bound cursor.Position) (Walk[R], error)
}

// Walk reads one run's recipients page by page.
type Walk[R any] interface {
	// Total estimates how many keys the walk will examine, for progress only; 0 is
	// unknown.
	Total() int64
	// Page examines at most limit keys after the given one, in key order, and returns
	// the recipients among them. Page.Read is 0 only when no key is left up to the
	// bound. tx is the chunk's transaction. The Rows may be reused by the next call.
	Page(ctx context.Context, tx pgx.Tx, after cursor.Position, limit int) (cursor.Page[R], error)
}

// Writer says what: it turns one chunk's recipients into rows, inside the chunk's
// transaction, and returns for how many of them it wrote; the others count as
// declined. It is called once per chunk, never with no rows, and again with the same recipients when the chunk is rolled back,
// so it must have no effect but through tx, and must neither commit nor roll it back.
// An error that wraps a PostgreSQL error is judged by its SQLSTATE; a lost connection
// and a chunk out of time are retried, the latter smaller. An error that a retry
// cannot fix (a data exception, a constraint violation, an error of the Writer's own,
// a panic) is taken to be one recipient's: the chunk is halved until that one is
// found, skipped and recorded. Any other makes the job FAILED.
type Writer[R any] interface {
	Write(ctx context.Context, tx pgx.Tx, j Job, rows []R) (int64, error)
}

// WriterFunc makes a Writer of a function.
type WriterFunc[R any] func(ctx context.Context, tx pgx.Tx, j Job, rows []R) (int64, error)

// Write calls f.
func (f WriterFunc[R]) Write(ctx context.Context, tx pgx.Tx, j Job, rows []R) (int64, error) {
	return f(ctx, tx, j, rows)
}

// Type is one kind of job a Runner can run: a name, who and what. The zero value
// is not usable; NewType makes one.
type Type struct {
	name        string
	description string
	asyncCommit bool
	fixedPath   bool
	keyset      cursor.Keyset
	bound       func(ctx context.Context, tx pgx.Tx, j Job) (cursor.Position, error)
	open        func(ctx context.Context, tx pgx.Tx, j Job, after, bound cursor.Position) (walker, error)
}

// Name is the text of jobs.type.
func (t Type) Name() string { return t.name }

// Description is the description in belfry.job_types.
func (t Type) Description() string { return t.description }

// TypeOption sets an optional property of a Type.
type TypeOption func(*Type)

// AsyncCommit lets the chunks of this type commit with synchronous_commit = off.
// It is safe exactly when nothing leaves the database because of a row: a crash of
// the server then loses the rows of the last moments together with the cursor, and
// the walk goes on from there. The statement that makes the job PROCESSED commits
// synchronously and flushes all chunks before it.
func AsyncCommit() TypeOption { return func(t *Type) { t.asyncCommit = true } }

// FixedPath runs the Source and the Writer with search_path = pg_catalog, pg_temp: their statements name the
// schemas of all other objects. Without it they have the search_path of the pool's sessions.
func FixedPath() TypeOption { return func(t *Type) { t.fixedPath = true } }

var typeName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`) })

// NewType joins a Source and a Writer under a name of 1 to 63 characters of a-z,
// 0-9 and _, starting with a letter. It panics on another name or a nil part: a
// programmer's error.
func NewType[R any](name, description string, who Source[R], what Writer[R], options ...TypeOption) Type {
	if !typeName().MatchString(name) || who == nil || what == nil {
		panic(fmt.Sprintf("job: type %q needs a name of 1 to 63 of a-z, 0-9 and _, starting with a letter, a Source and a Writer", name))
	}
	t := Type{
		name:        name,
		description: description,
		keyset:      who.Keyset(),
		bound: func(ctx context.Context, tx pgx.Tx, j Job) (bound cursor.Position, err error) {
			defer caught(&err)
			return who.Bound(ctx, tx, j)
		},
		open: func(ctx context.Context, tx pgx.Tx, j Job, after, bound cursor.Position) (w walker, err error) {
			defer caught(&err)
			walk, err := who.Open(ctx, tx, j, after, bound)
			if err != nil {
				return nil, err
			}
			return &typedWalk[R]{keyset: who.Keyset(), walk: walk, writer: what}, nil
		},
	}
	for _, option := range options {
		option(&t)
	}
	return t
}

// walker is a Walk and its Writer with the recipient's type erased.
type walker interface {
	total() int64
	step(ctx context.Context, tx pgx.Tx, j Job, after cursor.Position, limit int) (step, error)
	only(ctx context.Context, tx pgx.Tx, j Job, after, key cursor.Position) (step, error)
}

// step is the work of one chunk before its cursor moves.
type step struct {
	read    int             // keys examined; 0: exhausted
	matched int             // recipients among them
	rows    int64           // recipients that got their rows
	skipped int64           // recipients that were skipped: 0 or 1
	next    cursor.Position // the last key examined
}

// declined is how many recipients the Writer chose to write nothing for.
func (s step) declined() int64 { return int64(s.matched) - s.rows - s.skipped }

// agrees checks the accounts of one chunk.
func (s step) agrees() error {
	if s.matched > s.read {
		return contractError{fmt.Errorf("the Source found %d recipients among %d keys", s.matched, s.read)}
	}
	if s.rows < 0 || s.rows > int64(s.matched) {
		return contractError{fmt.Errorf("the Writer wrote for %d recipients of %d", s.rows, s.matched)}
	}
	return nil
}

type typedWalk[R any] struct {
	keyset cursor.Keyset
	walk   Walk[R]
	writer Writer[R]
}

func (w *typedWalk[R]) total() int64 { return w.walk.Total() }

// step reads one page and writes it. If writing fails it still returns the page.
func (w *typedWalk[R]) step(ctx context.Context, tx pgx.Tx, j Job, after cursor.Position, limit int) (s step, err error) {
	defer caught(&err)
	page, err := w.walk.Page(ctx, tx, after, limit)
	if err != nil {
		return step{}, fmt.Errorf("read page: %w", err)
	}
	if page.Read > limit {
		return step{}, contractError{fmt.Errorf("the Source read %d keys where at most %d were asked for", page.Read, limit)}
	}
	s = step{read: page.Read, matched: len(page.Rows), next: page.Next}
	return s, w.write(ctx, tx, j, page.Rows, &s)
}

// only writes the recipient at key and nobody else of those after it. A step
// without a recipient means that there is none any more.
func (w *typedWalk[R]) only(ctx context.Context, tx pgx.Tx, j Job, after, key cursor.Position) (s step, err error) {
	defer caught(&err)
	for {
		page, err := w.walk.Page(ctx, tx, after, 1)
		if err != nil {
			return step{}, fmt.Errorf("read page: %w", err)
		}
		if page.Read == 0 || w.keyset.Compare(page.Next, key) > 0 {
			return step{}, nil
		}
		if w.keyset.Compare(page.Next, after) <= 0 {
			return step{}, contractError{fmt.Errorf("the Source went from key %s to %s; keys must rise", w.keyset.Encode(after),
				w.keyset.Encode(page.Next))}
		}
		if after = page.Next; w.keyset.Compare(after, key) == 0 {
			s = step{read: page.Read, matched: len(page.Rows), next: page.Next}
			return s, w.write(ctx, tx, j, page.Rows, &s)
		}
	}
}

func (w *typedWalk[R]) write(ctx context.Context, tx pgx.Tx, j Job, rows []R, s *step) (err error) {
	if len(rows) == 0 {
		return nil
	}
	defer func() {
		if err != nil {
			err = writingError{err}
		}
	}()
	defer caught(&err)
	if s.rows, err = w.writer.Write(ctx, chunkTx{tx}, j, rows); err != nil {
		return fmt.Errorf("write rows: %w", judgeWriter(ctx, tx, err))
	}
	return nil
}

// chunkTx is the chunk's transaction as a Writer sees it: ending it is the
// engine's alone. A Writer may begin nested ones (savepoints).
type chunkTx struct{ pgx.Tx }

var errNotYours error = contractError{errors.New("a Writer must not end the chunk's transaction; return an error to roll it back")}

// Commit refuses.
func (chunkTx) Commit(context.Context) error { return errNotYours }

// Rollback refuses.
func (chunkTx) Rollback(context.Context) error { return errNotYours }

// caught, deferred, makes an error of a Source's or Writer's panic, with the place
// it came from: it fails the job, not the runner and its other jobs.
func caught(err *error) {
	p := recover()
	if p == nil {
		return
	}
	place := "unknown"
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	for panicked, more := false, true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		if panicked && !strings.HasPrefix(frame.Function, "runtime.") {
			place = fmt.Sprintf("%s (%s:%d)", frame.Function, filepath.Base(frame.File), frame.Line)
			break
		}
		panicked = panicked || frame.Function == "runtime.gopanic"
	}
	*err = fmt.Errorf("panic: %v at %s", p, place)
}
