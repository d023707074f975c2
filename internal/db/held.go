package db

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Held is one connection of a pool that its owner keeps over several transactions. It is not safe for concurrent use.
type Held struct {
	Pool *pgxpool.Pool
	conn *pgxpool.Conn // nil if there is none now
}

// Get returns the connection, a new one if the last was lost or dropped.
func (h *Held) Get(ctx context.Context) (*pgxpool.Conn, error) {
	if h.conn != nil && h.conn.Conn().IsClosed() {
		h.Drop()
	}
	if h.conn == nil {
		conn, err := h.Pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		h.conn = conn
	}
	return h.conn, nil
}

// Drop gives the connection up; the next Get takes another.
func (h *Held) Drop() {
	if h.conn != nil {
		h.conn.Release()
		h.conn = nil
	}
}

// PID returns the backend pid of the connection, or 0 without one. Behind a pooler in transaction mode the
// server does not know that number.
func (h *Held) PID() int64 {
	if h.conn == nil {
		return 0
	}
	return int64(h.conn.Conn().PgConn().PID())
}
