package schedule

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
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
		d := json.NewDecoder(bytes.NewReader([]byte(text)))
		d.DisallowUnknownFields()
		if err := d.Decode(&list[i]); err != nil || list[i].ChannelID == 0 || list[i].Value == nil {
			return nil, faultf("row %d of the query: %.80s is not a recipient with a value; allowed columns: channel_id, a bigint, and "+
				"value, a JSON object", i+1, text)
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

// copyValues writes the values of a job.
func copyValues(ctx context.Context, tx pgx.Tx, jobID int64, values []Value) error {
	if len(values) == 0 {
		return nil
	}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"belfry", "job_values"}, []string{"job_id", "channel_id", "value"},
		pgx.CopyFromSlice(len(values), func(i int) ([]any, error) { return []any{jobID, values[i].ChannelID, values[i].Value}, nil }))
	if err != nil {
		return fmt.Errorf("values of job %d: %w", jobID, err)
	}
	return nil
}
