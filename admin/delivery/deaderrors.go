package delivery

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/outbox"
)

const (
	// deadErrorsTime is the time limit of DeadErrors.
	deadErrorsTime = 5 * time.Second
	// deadErrorKinds is the maximum number of different errors, after which DeadErrors stops.
	deadErrorKinds = 2000
	// deadErrorsShown is the default number of errors of DeadErrors.
	deadErrorsShown = 100
	// errorIDBytes is the length of the id of an error.
	errorIDBytes = 8
)

// DeadError groups dead letters by medium and reason, by sender and code of the last attempt, and by
// kind of error.
type DeadError struct {
	Medium string        `json:"medium"`
	Reason outbox.Reason `json:"reason"`
	Sender string        `json:"sender"` // "" without a call or its record
	Code   string        `json:"code"`   // of the provider
	// Error is the text of the last failure, with # for variable parts: addresses, quoted words, and
	// words with a digit.
	Error   string    `json:"error" mask:"text"`
	Letters int64     `json:"letters"`
	Jobs    int64     `json:"jobs"`     // the number of their jobs, without activities
	FirstAt time.Time `json:"first_at"` // the times of the first and the last death
	LastAt  time.Time `json:"last_at"`
	// An example: the letter of the newest job to its highest channel.
	ExampleJobID     int64 `json:"example_job_id"` // negative: an activity
	ExampleChannelID int64 `json:"example_channel_id"`
	// Others is the number of selected and examined letters with this medium and reason and another
	// error: a filter by medium and reason also selects them.
	Others int64 `json:"others"`
	// ID identifies the error by its medium, reason, sender, code and text: a filter by it selects its letters.
	ID string `json:"id"`
}

// Filter is f narrowed to the letters of the error.
func (e DeadError) Filter(f DeadFilter) DeadFilter {
	f.Medium, f.Reason, f.Error = cmp.Or(e.Medium, f.Medium), e.Reason, e.ID
	return f
}

// DeadErrorList lists the errors of dead letters, the most frequent first.
type DeadErrorList struct {
	Errors []DeadError `json:"errors"`
	Kinds  int64       `json:"kinds"` // the number of errors, listed or not
	// Looked is the number of examined dead letters, Matched the number of selected ones among them:
	// the letters of all errors.
	Looked  int64 `json:"looked"`
	Matched int64 `json:"matched"`
	// Complete reports whether all letters were examined. Otherwise there were too many letters or
	// errors, and the letters of the newest jobs down to the key DownTo were examined.
	Complete bool        `json:"complete"`
	DownTo   *outbox.Key `json:"down_to"`
	// Filter is the filter, with absolute times.
	Filter DeadFilter `json:"filter"`
}

// DeadErrors counts the dead letters that f selects by their errors, and returns at most limit
// errors (0 means 100). It examines the newest letters (0 means all), for at most about five seconds, in
// short transactions of a bounded number of keys each, the newest jobs first and activities last. It
// returns the errors of DeadLetters.
func DeadErrors(ctx context.Context, pool *pgxpool.Pool, f DeadFilter, limit, newest int) (DeadErrorList, error) {
	w := deadErrorWalk{pool: pool, filter: f, keys: deadKeys, newest: int64(newest), kinds: deadErrorKinds,
		until: time.Now().Add(deadErrorsTime)}
	if newest > 0 {
		w.keys = min(w.keys, newest)
	}
	list, err := w.run(ctx, cmp.Or(limit, deadErrorsShown))
	if err != nil {
		return DeadErrorList{}, fmt.Errorf("errors of dead letters: %w", err)
	}
	return list, nil
}

// deadErrorKey is the key of a count of letters.
type deadErrorKey struct{ medium, reason, sender, code, error string }

// id returns the key's digest.
func (k deadErrorKey) id() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{k.medium, k.reason, k.sender, k.code, k.error}, "\x00")))
	return hex.EncodeToString(sum[:errorIDBytes])
}

// ofError reports whether a letter has the error of the filter, if any.
func (f DeadFilter) ofError(medium, reason, sender, code, message *string) bool {
	return f.Error == "" ||
		f.Error == deadErrorKey{textOf(medium), textOf(reason), textOf(sender), textOf(code), errorKind(textOf(message))}.id()
}

// deadErrorGroup is a count, and the lowest job among its letters.
type deadErrorGroup struct {
	DeadError

	job int64
}

// deadErrorWalk reads dead letters, the highest keys first.
type deadErrorWalk struct {
	pool        *pgxpool.Pool
	filter      DeadFilter
	keys, kinds int
	newest      int64 // letters to examine; 0 means all
	until       time.Time
	groups      map[deadErrorKey]*deadErrorGroup
	list        DeadErrorList
}

func (w *deadErrorWalk) run(ctx context.Context, limit int) (DeadErrorList, error) {
	w.list.Errors, w.list.Filter = []DeadError{}, w.filter
	if err := w.filter.check(ctx, w.pool); err != nil {
		return w.list, err
	}
	w.groups = make(map[deadErrorKey]*deadErrorGroup)
	low, high := w.filter.span()
	if high.ChannelID < math.MaxInt64 {
		high.ChannelID++
	}
	for {
		end := high
		err := operation.ReadTx(ctx, w.pool, func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, queries.deadErrors, w.filter.args(pgx.StrictNamedArgs{
				"before_job_id": high.JobID, "before_channel_id": high.ChannelID, "low_job_id": low.JobID, "low_channel_id": low.ChannelID,
				"keys": w.keys,
			}))
			if err != nil {
				return err
			}
			return w.count(rows, &end)
		})
		switch {
		case err != nil:
			return w.list, err
		case end == high:
			w.list.Complete, w.list.DownTo = true, nil
			w.sort(limit)
			return w.list, nil
		}
		high = end
		w.list.DownTo = &outbox.Key{JobID: end.JobID, ChannelID: end.ChannelID}
		if time.Now().After(w.until) || len(w.groups) >= w.kinds || w.newest > 0 && w.list.Looked >= w.newest {
			w.sort(limit)
			return w.list, nil
		}
	}
}

// count adds the counts of a step, and moves end to its last key. Rows are sorted by job, the highest
// first, so that the last job of an error is counted once.
func (w *deadErrorWalk) count(rows pgx.Rows, end *outbox.Key) error {
	var looked int64
	var jobID, example, letters *int64
	var medium, reason, sender, code, message *string
	var first, last *time.Time
	var lookedAt int64
	_, err := pgx.ForEachRow(rows, []any{&end.JobID, &end.ChannelID, &looked, &jobID, &medium, &reason, &sender, &code, &message,
		&letters, &example, &first, &last}, func() error {
		lookedAt = looked
		if letters == nil {
			return nil
		}
		k := deadErrorKey{textOf(medium), textOf(reason), textOf(sender), textOf(code), errorKind(textOf(message))}
		if w.filter.Error != "" && w.filter.Error != k.id() {
			return nil
		}
		g, counted := w.groups[k]
		if !counted {
			g = &deadErrorGroup{DeadError: DeadError{
				ID: k.id(), Medium: k.medium, Reason: outbox.Reason(k.reason), Sender: k.sender, Code: k.code, Error: k.error,
				FirstAt: first.UTC(), LastAt: last.UTC(), ExampleJobID: *jobID, ExampleChannelID: *example,
			}}
			w.groups[k] = g
		}
		if g.job != *jobID && *jobID > 0 {
			g.Jobs++
		}
		if g.ExampleJobID == *jobID {
			g.ExampleChannelID = max(g.ExampleChannelID, *example)
		}
		g.job = *jobID
		g.Letters += *letters
		w.list.Matched += *letters
		if first.Before(g.FirstAt) {
			g.FirstAt = first.UTC()
		}
		if last.After(g.LastAt) {
			g.LastAt = last.UTC()
		}
		return nil
	})
	w.list.Looked += lookedAt
	return err
}

// sort sorts the errors by their number of letters, and drops all after limit.
func (w *deadErrorWalk) sort(limit int) {
	type kind struct {
		medium string
		reason outbox.Reason
	}
	of := make(map[kind]int64)
	for _, g := range w.groups {
		of[kind{g.Medium, g.Reason}] += g.Letters
		w.list.Errors = append(w.list.Errors, g.DeadError)
	}
	for i := range w.list.Errors {
		e := &w.list.Errors[i]
		for k, letters := range of {
			if k.reason == e.Reason && (e.Medium == "" || k.medium == e.Medium) {
				e.Others += letters
			}
		}
		e.Others -= e.Letters
	}
	slices.SortFunc(w.list.Errors, func(a, b DeadError) int {
		return cmp.Or(cmp.Compare(b.Letters, a.Letters), cmp.Compare(a.Medium, b.Medium), cmp.Compare(a.Reason, b.Reason),
			cmp.Compare(a.Sender, b.Sender), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Error, b.Error))
	})
	w.list.Kinds = int64(len(w.list.Errors))
	w.list.Errors = w.list.Errors[:min(limit, len(w.list.Errors))]
}
