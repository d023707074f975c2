package schedule

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
)

// maxValues is the maximum number of recipients with a value per occurrence. QueryValues in queries.sql reads one more.
const maxValues = 1_000_000

// Value is the content of a job for one recipient, a row of belfry.job_values.
type Value struct {
	ChannelID int64           `json:"channel_id"`
	Value     json.RawMessage `json:"value"` // a JSON object of up to 4096 bytes
}

// values runs the operator's query of values, and returns them by ascending channel.
func (s Schedule) values(ctx context.Context, tx pgx.Tx, o time.Time) ([]Value, error) {
	texts, err := s.answer(ctx, tx, o, queries.queryValues)
	if err != nil {
		return nil, err
	}
	if len(texts) > maxValues {
		return nil, faultf("query: has more than %d rows; the maximum number of recipients with a value is %[1]d", maxValues)
	}
	list := make([]Value, len(texts))
	for i, text := range texts {
		texts[i] = "" // a million of them take as much memory as the values
		d := json.NewDecoder(bytes.NewReader([]byte(text)))
		d.DisallowUnknownFields()
		if err := d.Decode(&list[i]); err != nil || list[i].ChannelID == 0 || list[i].Value == nil {
			return nil, faultf("row %d of the query: %s is not a recipient with a value; allowed columns: channel_id, a bigint, and "+
				"value, a JSON object", i+1, columnsOf(text))
		}
	}
	slices.SortFunc(list, func(a, b Value) int { return cmp.Compare(a.ChannelID, b.ChannelID) }) // the order of the primary key
	for i := 1; i < len(list); i++ {
		if list[i].ChannelID == list[i-1].ChannelID {
			return nil, faultf("query: has channel %d twice; allowed: one row of a channel", list[i].ChannelID)
		}
	}
	return list, nil
}

// columnsOf has the names of a row's columns and not their values, which may be personal data: an error is stored, and an erasure
// does not find it.
func columnsOf(row string) string {
	var names []string
	d := json.NewDecoder(strings.NewReader(row))
	if _, err := d.Token(); err == nil {
		for len(names) < 10 && d.More() {
			name, err := d.Token()
			if err != nil {
				break
			}
			names = append(names, fmt.Sprintf("%.60s", name))
			if d.Decode(new(json.RawMessage)) != nil { // a long row is cut
				break
			}
		}
	}
	return fmt.Sprintf("(%s)", strings.Join(names, ", "))
}

// copyTimeout is the timeout of the COPY of all values, below fireTimeout, so that the error is recorded.
const copyTimeout = 25 * time.Second

// copyValues writes the values of each job.
func copyValues(ctx context.Context, tx pgx.Tx, jobs []int64, values []Value) error {
	timeout := copyTimeout / time.Duration(len(jobs))
	if _, err := tx.Exec(ctx, queries.valuesBegin, pgx.StrictNamedArgs{"timeout_ms": fmt.Sprint(timeout.Milliseconds())}); err != nil {
		return err
	}
	for _, id := range jobs {
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"belfry", "job_values"}, []string{"job_id", "channel_id", "value"},
			pgx.CopyFromSlice(len(values), func(i int) ([]any, error) { return []any{id, values[i].ChannelID, values[i].Value}, nil }))
		if db.ClassOf(err) == db.TooSlow {
			return faultf("values: %d rows were not written within %s", len(values), timeout)
		}
		if err != nil {
			return fmt.Errorf("values of job %d: %w", id, err)
		}
	}
	return nil
}
