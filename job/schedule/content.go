package schedule

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
)

const (
	// maxRows is the maximum number of jobs, or groups of jobs, per occurrence; maxRowLength, the maximum length of
	// a row as JSON in characters. QueryRows in queries.sql reads one more of each.
	maxRows      = 100
	maxRowLength = 65536
	// maxAnswer is the maximum size of all rows in bytes, because a firing has them in memory.
	maxAnswer = 64 << 20
)

// columns are the columns that a query may have.
const columns = "category, title, body, data, variants, route, audience, lane, priority, deliver_after, expires_after, " +
	"max_recipients, needs_approval"

// enqueue enqueues the jobs of one occurrence in the transaction and returns their ids. key is the idempotency key, to
// which the row number is appended if there is a query. OwnFault reports errors of the schedule, its query or a row. After
// an error the caller must roll back the transaction or savepoint.
func (s Schedule) enqueue(ctx context.Context, tx pgx.Tx, o time.Time, key string) ([]int64, error) {
	made, err := s.make(ctx, tx, o, key)
	if err != nil {
		return nil, err
	}
	jobs := []int64{}
	for i, m := range made {
		ids, err := enqueueOne(ctx, tx, m)
		if err != nil {
			return nil, s.rowFault(i, err)
		}
		jobs = append(jobs, ids...)
	}
	return jobs, nil
}

// Made is a job, or a group of jobs, that an occurrence enqueues.
type Made struct {
	job.Request
	Values []Value // of each job; nil unless Template.Values is set
}

// queriesJobs reports whether each row of the query makes a job.
func (s Schedule) queriesJobs() bool { return s.Query != "" && !s.Template.Values }

// make returns the jobs, or groups of jobs, of one occurrence.
func (s Schedule) make(ctx context.Context, tx pgx.Tx, o time.Time, key string) (_ []Made, err error) {
	rows := []map[string]json.RawMessage{nil} // one row that replaces nothing
	var values []Value
	switch {
	case s.queriesJobs():
		rows, err = s.rows(ctx, tx, o)
	case s.Template.Values:
		if values, err = s.values(ctx, tx, o); len(values) == 0 {
			rows = nil
		}
	}
	if err != nil {
		return nil, err
	}
	made := make([]Made, 0, len(rows))
	for i, row := range rows {
		t, err := s.Template.with(row)
		var spec job.Spec
		if err == nil {
			spec, err = t.spec(o)
		}
		if err != nil {
			return nil, s.rowFault(i, err)
		}
		spec.IdempotencyKey, spec.RequestedBy = key, "schedule "+s.Name
		if s.queriesJobs() {
			spec.IdempotencyKey = fmt.Sprintf("%s:%d", key, i+1)
		}
		made = append(made, Made{job.Request{Types: t.Types, Spec: spec}, values})
	}
	return made, nil
}

// rowFault adds the row of the query to an error.
func (s Schedule) rowFault(i int, err error) error {
	if !s.queriesJobs() {
		return err
	}
	return fmt.Errorf("row %d of the query: %w", i+1, err)
}

func enqueueOne(ctx context.Context, tx pgx.Tx, m Made) (ids []int64, err error) {
	ids = make([]int64, 1)
	if len(m.Types) == 1 {
		m.Spec.Type = m.Types[0]
		ids[0], err = job.EnqueueTx(ctx, tx, m.Spec)
	} else {
		ids, err = job.EnqueueGroupTx(ctx, tx, m.Types, m.Spec)
	}
	if err == nil && len(m.Values) > 0 {
		err = copyValues(ctx, tx, ids, m.Values)
	}
	return ids, err
}

// spec returns the job of an occurrence without its type and requester.
func (t Template) spec(o time.Time) (job.Spec, error) {
	spec := job.Spec{
		Category: t.Category, Title: t.Title, Body: t.Body, Lane: t.Lane, Priority: t.Priority, Route: t.Route,
		MaxRecipients: t.MaxRecipients, NeedsApproval: t.NeedsApproval, ScheduleAt: &o, Audience: channels.Everyone(),
	}
	for _, content := range []struct {
		key  string
		from map[string]any
		to   *json.RawMessage
	}{{"data", t.Data, &spec.Data}, {"variants", t.Variants, &spec.Variants}} {
		if content.from == nil {
			continue
		}
		text, err := json.Marshal(content.from)
		if err != nil {
			return spec, faultf("%s: %w", content.key, err)
		}
		*content.to = text
	}
	if t.Audience != nil {
		text, err := json.Marshal(t.Audience)
		if err == nil {
			spec.Audience, err = channels.ParseAudience(text)
		}
		if err != nil {
			return spec, faultf("audience: %w", err)
		}
	}
	for _, span := range []struct {
		key, text string
		at        **time.Time
	}{{"deliver_after", t.DeliverAfter, &spec.DeliverAt}, {"expires_after", t.ExpiresAfter, &spec.ExpiresAt}} {
		if span.text == "" {
			continue
		}
		d, err := parseSpan(span.text)
		if err != nil {
			return spec, faultf("%s: %w", span.key, err)
		}
		at := o.Add(d)
		*span.at = &at
	}
	return spec, nil
}

// with returns the template with the values of a row's columns. NULL keeps the template's value.
func (t Template) with(row map[string]json.RawMessage) (Template, error) {
	for _, key := range slices.Sorted(maps.Keys(row)) {
		value := row[key]
		isNull := string(value) == "null"
		var err error
		switch key {
		case "category":
			err = text(value, &t.Category)
		case "title":
			err = text(value, &t.Title)
		case "body":
			err = text(value, &t.Body)
		case "lane":
			err = text(value, &t.Lane)
		case "deliver_after":
			err = text(value, &t.DeliverAfter)
		case "expires_after":
			err = text(value, &t.ExpiresAfter)
		case "data":
			err = object(value, &t.Data)
		case "variants":
			err = object(value, &t.Variants)
		case "route":
			err = texts(value, &t.Route)
		case "audience":
			err = object(value, &t.Audience)
		case "priority":
			if !isNull && json.Unmarshal(value, &t.Priority) != nil {
				err = fmt.Errorf("%.40s is not a whole number; allowed values: -1000 to 1000", value)
			}
		case "max_recipients":
			if !isNull {
				t.MaxRecipients = new(int) // not the template's
				if json.Unmarshal(value, t.MaxRecipients) != nil {
					err = fmt.Errorf("%.40s is not a whole number; allowed values: 1 to %d", value, job.MostRecipients)
				}
			}
		case "needs_approval":
			if !isNull && json.Unmarshal(value, &t.NeedsApproval) != nil {
				err = fmt.Errorf("%.40s is not allowed; allowed values: true, false", value)
			}
		default:
			return t, faultf("column %q is not known; allowed columns: %s", key, columns)
		}
		if err != nil {
			return t, faultf("column %s: %w", key, err)
		}
	}
	return t, nil
}

// text reads a column of any simple type. NULL changes nothing.
func text(value json.RawMessage, target *string) error {
	switch value[0] {
	case 'n': // null
		return nil
	case '"':
		return json.Unmarshal(value, target)
	case '{', '[':
		return fmt.Errorf("is JSON; allowed values: texts")
	}
	*target = string(value)
	return nil
}

// object reads a column that is a JSON object, or a text with one.
func object(value json.RawMessage, target *map[string]any) error {
	value, err := content(value)
	if err != nil || value == nil {
		return err
	}
	var read map[string]any
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber() // preserves bigints
	if err := d.Decode(&read); err != nil || read == nil {
		return fmt.Errorf("%.40s is not a JSON object", value)
	}
	*target = read
	return nil
}

// texts reads a column that is a list of texts, or a text with a JSON list.
func texts(value json.RawMessage, target *[]string) error {
	value, err := content(value)
	if err != nil || value == nil {
		return err
	}
	var read []*string
	if err := json.Unmarshal(value, &read); err != nil || read == nil || slices.Contains(read, nil) {
		return fmt.Errorf("%.40s is not a list of texts; allowed values: as ARRAY['push', 'sms'], or JSON", value)
	}
	list := make([]string, 0, len(read))
	for _, one := range read {
		list = append(list, *one)
	}
	*target = list
	return nil
}

// content returns the JSON of a column: its value, or the content of a text. It returns nil for NULL.
func content(value json.RawMessage) (json.RawMessage, error) {
	switch value[0] {
	case 'n':
		return nil, nil
	case '"':
		var inner string
		err := json.Unmarshal(value, &inner)
		return json.RawMessage(inner), err
	}
	return value, nil
}

// rows runs the operator's query.
func (s Schedule) rows(ctx context.Context, tx pgx.Tx, o time.Time) ([]map[string]json.RawMessage, error) {
	texts, err := s.answer(ctx, tx, o, queries.queryRows)
	if err != nil {
		return nil, err
	}
	if len(texts) > maxRows {
		return nil, faultf("query: has more than %d rows; the maximum is %d, because each row becomes a job", maxRows, maxRows)
	}
	list := make([]map[string]json.RawMessage, 0, len(texts))
	for i, text := range texts {
		if len([]rune(text)) > maxRowLength {
			return nil, faultf("row %d of the query: has more than %d characters; the maximum is %d", i+1, maxRowLength, maxRowLength)
		}
		var row map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &row); err != nil {
			return nil, faultf("row %d of the query: %w", i+1, err)
		}
		list = append(list, row)
	}
	return list, nil
}

// answer returns the result of a statement that contains the operator's query. It runs read only, with the query's
// timeout and role, and nothing that the query changes in the session remains (db.Foreign). After a fault the connection
// may be closed.
func (s Schedule) answer(ctx context.Context, tx pgx.Tx, o time.Time, statement string) (texts []string, err error) {
	timeout, err := parseSpan(s.QueryTimeout)
	if err != nil {
		return nil, faultf("query_timeout: %w", err)
	}
	err = db.Foreign(ctx, tx, func(tx pgx.Tx) error {
		if err := s.become(ctx, tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, queries.queryBegin, pgx.StrictNamedArgs{
			"timeout_ms": fmt.Sprint(timeout.Milliseconds()), "occurrence": o.Format(time.RFC3339Nano),
		})
		if err != nil {
			return err
		}
		texts, err = s.read(ctx, tx, statement)
		return err
	})
	if err != nil && tx.Conn().IsClosed() && !errors.Is(ctx.Err(), context.Canceled) && !errors.As(err, new(*faultError)) {
		return nil, faultf("query: ended its connection, or was still running after its time: %w", err)
	}
	return texts, err
}

// become makes the rest of the savepoint run as the query's role. A query without a role runs as this user if the role
// that stored it could become this user.
func (s Schedule) become(ctx context.Context, tx pgx.Tx) error {
	if s.QueryRole == "" {
		return s.trust(ctx, tx)
	}
	var user, database string
	if err := tx.QueryRow(ctx, queries.queryWho).Scan(&user, &database); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, queries.queryRole, pgx.StrictNamedArgs{"role": s.QueryRole}); err != nil {
		return roleFault(err, s.QueryRole, user)
	}
	_, err := tx.Exec(ctx, queries.queryGuard)
	return guardFault(err, s.QueryRole, database)
}

// trust rejects a query that was stored by a role with other rights.
func (s Schedule) trust(ctx context.Context, tx pgx.Tx) error {
	if s.QueryBy == "" {
		return nil
	}
	var trusted bool
	var by, user string
	if err := tx.QueryRow(ctx, queries.queryTrusted, pgx.StrictNamedArgs{"by": s.QueryBy}).Scan(&trusted, &by, &user); err != nil {
		return err
	}
	if !trusted {
		return faultf("query_role: is required, as %s stored the query and may not become %s, which would run it; allowed "+
			"values: a role that both may become; or store the query as %[2]s", by, user)
	}
	return nil
}

func (s Schedule) read(ctx context.Context, tx pgx.Tx, sql string) ([]string, error) {
	body := strings.TrimRight(s.Query, "; \t\r\n")
	sql = strings.Replace(sql, "/* query */", body, 1)
	// The extended protocol permits one statement only, in every mode of the pool, so the query cannot end the
	// transaction.
	args := []any{pgx.QueryExecModeExec}
	if s.QueryRole != "" {
		sql, args = queries.queryGuarded, append(args, pgx.StrictNamedArgs{"query": sql})
	}
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, s.queryFault(err)
	}
	var texts []string
	var text string
	size := 0
	_, err = pgx.ForEachRow(rows, []any{&text}, func() error {
		if size += len(text); size > maxAnswer {
			return faultf("query: has rows of more than %d MiB; enqueue the job with its values by SQL instead", maxAnswer>>20)
		}
		texts = append(texts, text)
		return nil
	})
	return texts, s.queryFault(err)
}
