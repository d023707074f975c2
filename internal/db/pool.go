package db

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
)

const (
	// Remedy is the advice for a pooler that loses prepared statements.
	Remedy = "add default_query_exec_mode=cache_describe to the database's URL, or have the pooler carry prepared statements " +
		"(PgBouncer 1.21 and later: max_prepared_statements)"
	// probeTimeout bounds DetectPooler. A full pooler makes its connections wait.
	probeTimeout = 3 * time.Second
	// descriptions is pgx's default size of a connection's description cache.
	descriptions = 512
	// way is the key in a connection's custom data for the QueryExecMode it was opened with.
	way = "belfry.query_exec_mode"
)

// ErrLost reports a prepared statement that a pooler in transaction mode has lost, or that belongs to
// another client.
var ErrLost = errors.New("a pooler in transaction mode loses prepared statements: " + Remedy)

// Explain adds ErrLost or ErrRowSecurity, which contain the remedy, to an error that Lost or HidesRows
// recognises.
func Explain(err error) error {
	if HidesRows(err) {
		return explainHidden(err)
	}
	if !Lost(err) || errors.Is(err, ErrLost) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

// Lost reports whether err means that a pooler in transaction mode has lost a prepared statement, or has
// confused it with another client's. Nothing was executed.
func Lost(err error) bool { return classOf(Code(err)) == Unprepared }

// Prepares reports whether the mode prepares statements and executes them later, possibly on another server
// connection.
func Prepares(mode pgx.QueryExecMode) bool {
	return mode == pgx.QueryExecModeCacheStatement || mode == pgx.QueryExecModeDescribeExec
}

// detectKey marks the context of DetectPooler, which connects with a connection's own config.
type detectKey struct{}

// errNoCancel replaces a cancel request, which must not go through a pooler.
var errNoCancel = errors.New("no cancel request is sent through a pooler")

// Open returns a pool that also works through a pooler. It sets BeforeConnect, PrepareConn and the
// connections' Tracer, and calls config's AfterConnect first. Like pgxpool it connects at the first use.
func Open(ctx context.Context, config *pgxpool.Config, log zerolog.Logger) (*pgxpool.Pool, error) {
	g := &guard{log: log, welcome: config.AfterConnect}
	config.BeforeConnect, config.AfterConnect = g.beforeConnect, g.afterConnect
	if Prepares(config.ConnConfig.DefaultQueryExecMode) {
		config.PrepareConn, config.ConnConfig.Tracer = g.prepareConn, g
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// guard decides for one pool whether statements are prepared, and whether the end of a context cancels the
// statement on the server.
type guard struct {
	log       zerolog.Logger
	welcome   func(context.Context, *pgx.Conn) error // may be nil
	without   atomic.Bool                            // statements are no longer prepared
	pooled    atomic.Bool                            // behind a pooler
	detecting sync.Mutex                             // held during DetectPooler
}

func (g *guard) beforeConnect(_ context.Context, c *pgx.ConnConfig) error {
	if g.without.Load() {
		c.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		c.DescriptionCacheCapacity = cmp.Or(c.DescriptionCacheCapacity, descriptions)
	}
	// After the connection is established, pgx dials only for cancel requests.
	var connected atomic.Bool
	dial, after := c.DialFunc, c.AfterConnect
	c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if connected.Load() && g.pooled.Load() && ctx.Value(detectKey{}) == nil {
			return nil, errNoCancel
		}
		return dial(ctx, network, address)
	}
	c.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		connected.Store(true)
		if after == nil {
			return nil
		}
		return after(ctx, conn)
	}
	return nil
}

func (g *guard) afterConnect(ctx context.Context, conn *pgx.Conn) error {
	if g.welcome != nil {
		if err := g.welcome(ctx, conn); err != nil {
			return err
		}
	}
	mode := conn.Config().DefaultQueryExecMode
	conn.PgConn().CustomData()[way] = mode
	g.detecting.Lock()
	defer g.detecting.Unlock()
	if g.pooled.Load() {
		return nil
	}
	pooler, err := behindPooler(ctx, conn)
	if err == nil && pooler {
		err = transacts(ctx, conn)
	}
	if err != nil {
		return err
	}
	if !Prepares(mode) {
		g.pooled.Store(pooler)
		return nil
	}
	found, err := DetectPooler(ctx, conn)
	g.pooled.Store(found.Pooler)
	switch {
	case found.Loses:
		g.goWithout(nil, "a pooler in transaction mode loses prepared statements; they are not used any more")
	case found.Pooler && err != nil:
		g.goWithout(err, "a pooler may lose prepared statements; they are not used any more")
	}
	if found.Pooler {
		return nil
	}
	return err
}

// prepareConn replaces connections that prepare statements after goWithout.
func (g *guard) prepareConn(_ context.Context, conn *pgx.Conn) (bool, error) {
	if !g.without.Load() {
		return true, nil
	}
	mode, _ := conn.PgConn().CustomData()[way].(pgx.QueryExecMode)
	return !Prepares(mode), nil
}

// goWithout stops preparing statements and logs it once.
func (g *guard) goWithout(err error, why string) {
	if !g.without.Swap(true) {
		g.log.Warn().Err(err).Str("detail", Remedy).Msg(why)
	}
}

func (g *guard) saw(err error) {
	if Lost(err) {
		g.goWithout(err, "a prepared statement was lost, probably by a pooler in transaction mode; they are not used any more")
	}
}

// TraceQueryStart does nothing.
func (g *guard) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd checks the error of a statement.
func (g *guard) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	g.saw(data.Err)
}

// TraceBatchStart does nothing.
func (g *guard) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

// TraceBatchQuery checks the error of a statement of a batch.
func (g *guard) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	g.saw(data.Err)
}

// TraceBatchEnd checks the error of a batch.
func (g *guard) TraceBatchEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	g.saw(data.Err)
}

// TracePrepareStart does nothing.
func (g *guard) TracePrepareStart(ctx context.Context, _ *pgx.Conn, _ pgx.TracePrepareStartData) context.Context {
	return ctx
}

// TracePrepareEnd checks the error of a PREPARE, also for the description of a COPY.
func (g *guard) TracePrepareEnd(_ context.Context, _ *pgx.Conn, data pgx.TracePrepareEndData) {
	g.saw(data.Err)
}
