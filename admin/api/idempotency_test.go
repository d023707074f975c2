package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

type count struct {
	N    int64  `json:"n"`
	Pad  string `json:"pad"`
	Size int    `json:"size"`
}

type countInput struct {
	Fail string `flag:"fail" help:"how"`
	Pad  int    `flag:"pad" help:"of the answer"`
}

// counting serves acts that count how often they were done.
func counting(t *testing.T, wait <-chan struct{}) (*bundle, *atomic.Int64) {
	t.Helper()
	done := new(atomic.Int64)
	act := func(ctx context.Context, _ *operation.Env, in countInput) (count, error) {
		n := done.Add(1)
		if wait != nil {
			<-wait
		}
		switch in.Fail {
		case "conflict":
			return count{}, job.ErrLocked
		case "failed":
			return count{}, errors.New("broken")
		case "half":
			return count{N: n}, job.ErrLocked
		}
		return count{N: n, Pad: strings.Repeat("x", in.Pad)}, ctx.Err()
	}
	text := func(*text.Doc, countInput, count) {}
	b := setup(t, func(c *api.Options) {
		c.Operations = []operation.Operation{
			operation.Define(operation.Operation{Name: "things count", Short: "Count", Role: operation.Author, Changes: true}, act, text),
			operation.Define(operation.Operation{Name: "things hide", Short: "Count", Role: operation.Author, Changes: true, Secret: true}, act, text),
			operation.Define(operation.Operation{Name: "things show", Short: "Look", Role: operation.Viewer}, act, text),
		}
	})
	return b, done
}

// A request with a key is done once: repeated it is answered as at first.
func TestIdempotency_ARepeatedRequestIsDoneOnce(t *testing.T) {
	t.Parallel()
	b, done := counting(t, nil)
	first := b.call(t, "author", "POST", "/things/count", `{"pad": 3}`, "Idempotency-Key", `"k-1"`)
	require.Equal(t, http.StatusOK, first.status, first.text)
	require.Empty(t, first.header.Get("Idempotent-Replayed"))
	for _, key := range []string{`"k-1"`, "k-1"} {
		again := b.call(t, "author", "POST", "/things/count", `{"pad": 3}`, "Idempotency-Key", key)
		require.Equal(t, http.StatusOK, again.status)
		require.Equal(t, first.text, again.text, "also the receipt's moments")
		require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
		require.Equal(t, "application/json", again.header.Get("Content-Type"))
	}
	require.EqualValues(t, 1, done.Load())
	for _, other := range []struct{ path, body string }{{"/things/count", `{"pad": 4}`}, {"/things/hide", `{"pad": 3}`}, {"/things/count", ""}} {
		a := b.call(t, "author", "POST", other.path, other.body, "Idempotency-Key", "k-1")
		require.Equal(t, http.StatusUnprocessableEntity, a.status)
		require.Contains(t, a.problem(t).Detail, "used for another request")
	}
	a := b.call(t, "operator", "POST", "/things/count", `{"pad": 3}`, "Idempotency-Key", "k-1")
	require.Contains(t, a.text, `"n":2`, "a key is one identity's: another's neither collides with it nor reads it")
	a = b.call(t, "author", "POST", "/things/count", `{"pad": 3}`)
	require.Contains(t, a.text, `"n":3`, "without a key")
	for range 2 {
		require.Equal(t, http.StatusOK, b.call(t, "author", "GET", "/things/show", "", "Idempotency-Key", ",").status, "what looks has no key")
	}
	for _, key := range []string{"", `""`, `"`, `"a`, `a"`, `a b`, `"a", "b"`, `"a";p=1`, strings.Repeat("x", 256), "\xc3\xa4"} {
		a := b.call(t, "author", "POST", "/things/count", "", "Idempotency-Key", key)
		require.Equal(t, http.StatusBadRequest, a.status, "%q", key)
		require.Contains(t, a.problem(t).Detail, "Idempotency-Key: is malformed; allowed values: ")
	}
	require.Equal(t, http.StatusOK, b.call(t, "author", "POST", "/things/count", "", "Idempotency-Key", strings.Repeat("x", 255)).status)
}

// What did nothing may be tried again with its key; what may have done something is not.
func TestIdempotency_OnlyWhatDidNothingIsDoneAgain(t *testing.T) {
	t.Parallel()
	b, done := counting(t, nil)
	for fail, want := range map[string]struct {
		status int
		done   int64
	}{"conflict": {409, 2}, "failed": {500, 1}, "half": {409, 1}} {
		done.Store(0)
		var texts []string
		for range 2 {
			a := b.call(t, "author", "POST", "/things/count", `{"fail": "`+fail+`"}`, "Idempotency-Key", fail)
			require.Equal(t, want.status, a.status, a.text)
			a.problem(t)
			texts = append(texts, a.text)
		}
		require.Equal(t, texts[0], texts[1])
		require.Equal(t, want.done, done.Load(), fail)
	}
	for path, body := range map[string]string{"/things/hide": "", "/things/count": fmt.Sprintf(`{"pad": %d}`, operation.MaxAnswer)} {
		done.Store(0)
		require.Equal(t, http.StatusOK, b.call(t, "author", "POST", path, body, "Idempotency-Key", path[8:]).status)
		a := b.call(t, "author", "POST", path, body, "Idempotency-Key", path[8:])
		require.Equal(t, http.StatusConflict, a.status)
		require.Contains(t, a.problem(t).Detail, "was done, with status 200; its answer is not stored")
		require.EqualValues(t, 1, done.Load(), path)
	}
}

// Whatever is asked at one time, one is done; a process that died in between leaves an outcome
// that is said to be unknown, and a key that is not free before its 24 hours are over.
func TestIdempotency_NeverTwice(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	b, done := counting(t, release)
	answers := make(chan answer, 8)
	var asking sync.WaitGroup
	for range cap(answers) {
		asking.Go(func() {
			answers <- b.call(t, "author", "POST", "/things/count", "", "Idempotency-Key", "k")
		})
	}
	for range cap(answers) - 1 { // all but the one that is done, which waits
		a := <-answers
		require.Equal(t, http.StatusConflict, a.status, a.text)
		require.Contains(t, a.problem(t).Detail, "still in progress")
		require.NotEmpty(t, a.header.Get("Retry-After"))
	}
	close(release)
	require.Equal(t, http.StatusOK, (<-answers).status)
	asking.Wait()
	require.EqualValues(t, 1, done.Load())

	b.exec(t, `UPDATE belfry.requests SET status = NULL, answer = NULL, ends_at = now() - interval '1 second'`) // as of a process that died
	a := b.call(t, "author", "POST", "/things/count", "", "Idempotency-Key", "k")
	require.Equal(t, http.StatusInternalServerError, a.status)
	require.Equal(t, db.KindUnknown, a.problem(t).Kind)
	require.EqualValues(t, 1, done.Load())
	b.exec(t, `INSERT INTO belfry.requests (who, key, fingerprint, at, ends_at)
		SELECT 'other', n::text, sha256(''), now() - interval '25 hours', now() FROM generate_series(1, 150) n`)
	b.exec(t, `UPDATE belfry.requests SET at = now() - interval '24 hours 1 second' WHERE key = 'k'`)
	require.Equal(t, http.StatusOK, b.call(t, "author", "POST", "/things/count", "", "Idempotency-Key", "k").status)
	require.EqualValues(t, 2, done.Load())
	var left int
	require.NoError(t, b.db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM belfry.requests`).Scan(&left))
	require.Equal(t, 51, left, "each request deletes up to a hundred that are over")
}

// A key whose row cannot be written is not worth an act that might be done twice.
func TestIdempotency_WithoutItsTableNothingIsDone(t *testing.T) {
	t.Parallel()
	b, done := counting(t, nil)
	b.exec(t, `DROP TABLE belfry.requests`)
	require.GreaterOrEqual(t, b.call(t, "author", "POST", "/things/count", "", "Idempotency-Key", "k").status, 500)
	require.Zero(t, done.Load())
}
