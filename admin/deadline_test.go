package admin_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/job"
)

// unbounded keeps the statements that are sent outside of a transaction: nothing tells the server
// when to end them. The clock is no matter.
type unbounded struct{ statements []string }

func (u *unbounded) TraceQueryStart(ctx context.Context, c *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if sql := strings.ToLower(data.SQL); c.PgConn().TxStatus() == 'I' && !strings.HasPrefix(sql, "begin") && !strings.Contains(sql, "clock_timestamp()") {
		u.statements = append(u.statements, data.SQL)
	}
	return ctx
}

func (*unbounded) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// What looks does so in transactions, whose statements the server ends when time is up: behind a
// pooler nothing else would. The doctor, which has to work where belfry does not, has a limit for
// each of its checks.
func TestOperations_LooksAreEndedByTheServer(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.enqueue("inbox")
	sent := new(unbounded)
	pc, err := pgxpool.ParseConfig(d.db.DSN)
	require.NoError(t, err)
	pc.ConnConfig.Tracer = sent
	pool, err := pgxpool.NewWithConfig(t.Context(), pc)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	d.env.DB, d.env.Jobs = pool, job.NewStore(pool)
	looked := 0
	for _, o := range admin.Operations() {
		told := slices.ContainsFunc(o.Params(), func(p admin.Param) bool { return p.Required })
		if o.Changes || o.Item() != nil || told || o.Name == "doctor" {
			continue
		}
		sent.statements = nil
		if _, err := o.Run(t.Context(), d.env, o.NewInput()); err == nil {
			looked++
		}
		require.Empty(t, sent.statements, o.Name)
	}
	require.Greater(t, looked, 20)
}
