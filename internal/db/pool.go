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
	// Remedy has nothing prepared from the start.
	Remedy = "add default_query_exec_mode=cache_describe to the database's URL, or have the pooler carry prepared statements (PgBouncer 1.21 and later: max_prepared_statements)"
	// probeTimeout bounds the connections of a look. A pooler that is full lets them wait.
	probeTimeout = 3 * time.Second
	// descriptions is how many a connection keeps, as pgx has it.
	descriptions = 512
	// way is where a connection keeps the QueryExecMode it was opened with.
	way = "belfry.query_exec_mode"
)

// ErrLost reports a statement that a pooler in transaction mode has lost, or has kept of
// somebody else.
var ErrLost = errors.New("a pooler in transaction mode loses prepared statements: " + Remedy)

// Explain adds ErrLost or ErrRowSecurity, which name the remedy, to an error that Lost or HidesRows
// knows.
func Explain(err error) error {
	if HidesRows(err) {
		return explainHidden(err)
	}
	if !Lost(err) || errors.Is(err, ErrLost) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

// Lost reports whether err is that of a prepared statement which a pooler in transaction
// mode has lost, or has kept of somebody else. Nothing was executed.
func Lost(err error) bool { return classOf(Code(err)) == Unprepared }

// Prepares reports whether statements of the mode are prepared on one server connection
// and executed later, maybe on another.
func Prepares(mode pgx.QueryExecMode) bool {
	return mode == pgx.QueryExecModeCacheStatement || mode == pgx.QueryExecModeDescribeExec
}

// lookKey marks the context of a look, which connects with a connection's own config.
type lookKey struct{}

// errNoCancel is the answer to a cancel request that a pooler does not get.
var errNoCancel = errors.New("no cancel request is sent through a pooler")

// Open returns a pool over config that works through a pooler. BeforeConnect, PrepareConn
// and the connections' Tracer are Open's own to set; AfterConnect is called first. Like
// pgxpool it connects with the first use.
func Open(ctx context.Context, config *pgxpool.Config, log zerolog.Logger) (*pgxpool.Pool, error) {
	g := &guard{log: log, welcome: config.AfterConnect}
	config.BeforeConnect, config.AfterConnect = g.beforeConnect, g.afterConnect
	if Prepares(config.ConnConfig.DefaultQueryExecMode) {
		config.PrepareConn, config.ConnConfig.Tracer = g.prepareConn, g
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// guard decides for one pool whether statements are prepared, and whether a statement whose
// context ends is cancelled in the server.
type guard struct {
	log     zerolog.Logger
	welcome func(context.Context, *pgx.Conn) error // may be nil
	without atomic.Bool                            // nothing is prepared any more
	pooled  atomic.Bool                            // behind a pooler
	looking sync.Mutex                             // one looks at a time
}

func (g *guard) beforeConnect(_ context.Context, c *pgx.ConnConfig) error {
	if g.without.Load() {
		c.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		c.DescriptionCacheCapacity = cmp.Or(c.DescriptionCacheCapacity, descriptions)
	}
	// Once it is connected, a connection dials for a cancel request only.
	var connected atomic.Bool
	dial, after := c.DialFunc, c.AfterConnect
	c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if connected.Load() && g.pooled.Load() && ctx.Value(lookKey{}) == nil {
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
	g.looking.Lock()
	defer g.looking.Unlock()
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
	found, err := Look(ctx, conn)
	g.pooled.Store(found.Pooler)
	switch {
	case found.Loses:
		g.goWithout(nil, "a pooler in transaction mode loses prepared statements; going on without any")
	case found.Pooler && err != nil:
		g.goWithout(err, "a pooler may lose prepared statements; going on without any")
	}
	if found.Pooler {
		return nil
	}
	return err
}

// prepareConn has a connection that prepares replaced, once nothing is to be prepared.
func (g *guard) prepareConn(_ context.Context, conn *pgx.Conn) (bool, error) {
	if !g.without.Load() {
		return true, nil
	}
	mode, _ := conn.PgConn().CustomData()[way].(pgx.QueryExecMode)
	return !Prepares(mode), nil
}

// goWithout ends preparing, and says so once.
func (g *guard) goWithout(err error, why string) {
	if !g.without.Swap(true) {
		g.log.Warn().Err(err).Str("detail", Remedy).Msg(why)
	}
}

func (g *guard) saw(err error) {
	if Lost(err) {
		g.goWithout(err, "a prepared statement was lost, as by a pooler in transaction mode; going on without any")
	}
}

// TraceQueryStart does nothing.
func (g *guard) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd sees the error of a statement.
func (g *guard) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	g.saw(data.Err)
}

// TraceBatchStart does nothing.
func (g *guard) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

// TraceBatchQuery sees the error of a statement of a batch.
func (g *guard) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	g.saw(data.Err)
}

// TraceBatchEnd sees the error of a batch.
func (g *guard) TraceBatchEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	g.saw(data.Err)
}

// TracePrepareStart does nothing.
func (g *guard) TracePrepareStart(ctx context.Context, _ *pgx.Conn, _ pgx.TracePrepareStartData) context.Context {
	return ctx
}

// TracePrepareEnd sees the error of what was to be prepared, a COPY's description too.
func (g *guard) TracePrepareEnd(_ context.Context, _ *pgx.Conn, data pgx.TracePrepareEndData) {
	g.saw(data.Err)
}
