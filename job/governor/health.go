package governor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
)

// Vitals are the result of one health probe. A nil field means that its check is off, there is nothing of
// the kind, or this role may not see it (Hidden).
type Vitals struct {
	RecentBackends *int           // client backends that did something within the last second, belfry's own not among them
	Transactions   *int64         // of all clients of the server since the statistics were reset
	OfRelays       int64          // of these, the transactions of this database's relays, by their last heartbeats
	ReplicaLag     *time.Duration // replay lag of the standby furthest behind; 0: none lags
	Checkpoints    *int64         // requested checkpoints since the statistics were reset
	WALBytes       *int64         // position in the WAL
	Query          *float64       // the user's number
	QueryError     error          // why it is missing; the check's last verdict stands for a while
	Hidden         []string       // rules whose statistics the role may not read: grant it pg_monitor
}

// ProbeTimeout bounds a probe, and the user's query by itself.
const ProbeTimeout = 2 * time.Second

// probed is what HealthProbe returns.
type probed struct {
	RecentBackends *int     `db:"recent_backends"`
	Transactions   *int64   `db:"transactions"`
	OfRelays       *int64   `db:"of_relays"`
	LagSeconds     *float64 `db:"lag_seconds"`
	ReplicasHidden bool     `db:"replicas_hidden"`
	Checkpoints    *int64   `db:"checkpoints"`
	WALBytes       *int64   `db:"wal_bytes"`
}

// Probe reads the values of the enabled checks, in read-only transactions of its own: one statement over the
// server's statistics, then the user's query, whose failure is QueryError and not an error.
func Probe(ctx context.Context, pool *pgxpool.Pool, c HealthConfig) (v Vitals, err error) {
	if c.readsStatistics() {
		if v, err = probeStatistics(ctx, pool, c); err != nil {
			return Vitals{}, fmt.Errorf("health probe: %w", err)
		}
	}
	if c.Query != "" {
		value, err := probeQuery(ctx, pool, c.Query)
		if err != nil {
			v.QueryError = fmt.Errorf("health query: %w", err)
		} else {
			v.Query = &value
		}
	}
	return v, nil
}

// readsStatistics reports whether a check needs HealthProbe.
func (c HealthConfig) readsStatistics() bool {
	return c.Transactions > 0 || c.ReplicaLag > 0 || c.Checkpoints > 0
}

// probes reports whether any check needs a probe.
func (c HealthConfig) probes() bool { return c.Enabled && (c.readsStatistics() || c.Query != "") }

func probeStatistics(ctx context.Context, pool *pgxpool.Pool, c HealthConfig) (v Vitals, err error) {
	var p probed
	err = readOnly(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		p, err = db.One[probed](ctx, tx, probeStatement(serverMajor(tx.Conn())), pgx.StrictNamedArgs{
			"replicas": c.ReplicaLag > 0, "checkpoints": c.Checkpoints > 0, "transactions": c.Transactions > 0,
		})
		return err
	})
	if err != nil {
		return v, err
	}
	v = Vitals{RecentBackends: p.RecentBackends, Transactions: p.Transactions, Checkpoints: p.Checkpoints, WALBytes: p.WALBytes}
	if p.OfRelays != nil {
		v.OfRelays = *p.OfRelays
	}
	var lag time.Duration
	switch {
	case p.LagSeconds != nil:
		lag = seconds(*p.LagSeconds)
		v.ReplicaLag = &lag
	case c.ReplicaLag > 0 && !p.ReplicasHidden:
		v.ReplicaLag = &lag // no standby, or none that lags
	}
	if p.ReplicasHidden {
		v.Hidden = []string{ruleReplicaLag}
	}
	return v, nil
}

// probeStatement is HealthProbe for the server's version: PostgreSQL 17 moved the
// checkpointer's counters into a view of their own.
func probeStatement(major int) string {
	view, column := "pg_stat_checkpointer", "num_requested"
	if major < 17 {
		view, column = "pg_stat_bgwriter", "checkpoints_req"
	}
	return strings.NewReplacer(
		"{{checkpointer}}", pgx.Identifier{view}.Sanitize(), "{{requested}}", pgx.Identifier{column}.Sanitize(),
	).Replace(queries.healthProbe)
}

// serverMajor is the server's major version as it, or a pooler for it, reported it
// when the connection was made; 0: it did not.
func serverMajor(conn *pgx.Conn) int {
	version := conn.PgConn().ParameterStatus("server_version")
	digits := len(version) - len(strings.TrimLeft(version, "0123456789"))
	major, err := strconv.Atoi(version[:digits])
	if err != nil {
		return 0
	}
	return major
}

// errNoNumber reports a user's query that does not return one number.
var errNoNumber = errors.New("it must return one row with one number")

// probeQuery runs the user's query, which has to return one row of one number.
func probeQuery(ctx context.Context, pool *pgxpool.Pool, sql string) (value float64, err error) {
	err = readOnly(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		return db.Foreign(ctx, tx, func(tx pgx.Tx) error {
			value, err = readNumber(ctx, tx, sql)
			return err
		})
	})
	return value, err
}

// readNumber returns the only value of a query.
func readNumber(ctx context.Context, tx pgx.Tx, sql string) (value float64, err error) {
	rows, err := tx.Query(ctx, sql, pgx.QueryExecModeExec)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return 0, err
		}
		return 0, fmt.Errorf("%w, not none", errNoNumber)
	}
	values, err := rows.Values()
	if err != nil {
		return 0, err
	}
	if len(values) != 1 {
		return 0, fmt.Errorf("%w, not %d columns", errNoNumber, len(values))
	}
	if value, err = asNumber(values[0]); err != nil {
		return 0, err
	}
	if rows.Next() {
		return 0, fmt.Errorf("%w, not several rows", errNoNumber)
	}
	return value, rows.Err()
}

// asNumber accepts the number types of PostgreSQL as pgx decodes them.
func asNumber(v any) (float64, error) {
	switch n := v.(type) {
	case int16:
		return float64(n), nil
	case int32:
		return float64(n), nil
	case int64:
		return float64(n), nil
	case float32:
		return finite(float64(n))
	case float64:
		return finite(n)
	case pgtype.Numeric:
		f, err := n.Float64Value()
		if err != nil {
			return 0, fmt.Errorf("%w: %w", errNoNumber, err)
		}
		return finite(f.Float64)
	case nil:
		return 0, fmt.Errorf("%w, not NULL", errNoNumber)
	}
	return 0, fmt.Errorf("%w, not a %T", errNoNumber, v)
}

// finite rejects values that are not comparable with a threshold.
func finite(f float64) (float64, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, fmt.Errorf("%w, not %v", errNoNumber, f)
	}
	return f, nil
}

// readOnly runs do in one short read-only transaction within probeTimeout.
func readOnly(ctx context.Context, pool *pgxpool.Pool, do func(context.Context, pgx.Tx) error) error {
	return db.InTx(ctx, pool, db.Options{Limit: ProbeTimeout, Grace: time.Second, Reads: true}, do) // the server is to be first
}
