package db_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/db"
)

// Every code that belfry decides by, and the neighbours that must not be taken for it.
func TestClassOf_EveryCode(t *testing.T) {
	t.Parallel()
	for class, codes := range map[db.Class][]string{
		db.Unreachable: {"08000", "08001", "08003", "08004", "08006", "08P01", "53300", "57P01", "57P02", "57P03", "57P04", "57P05"},
		db.Refused:     {"28000", "28P01", "3D000"},
		db.NoAnswer:    nil, // no code has it
		db.TooSlow:     {"57014", "25P03", "25P04"},
		db.Locked:      {"55P03", "55006"},
		db.Conflict:    {"40001", "40P01", "40002", "40003", "40000"},
		db.Shortage:    {"53000", "53100", "53200", "53400", "58000", "58030", "58P01"},
		db.ReadOnly:    {"25006"},
		db.Unprepared:  {"26000", "42P05"},
		db.Invalid:     {"22000", "22001", "22003", "22012", "22021", "22023", "22P02", "22P05", "54000", "54001", "54023"},
		db.Violation:   {"23000", "23001", "23502", "23503", "23505", "23514", "23P01"},
		db.Raised:      {"P0000", "P0001", "P0002", "P0004"},
		db.Forbidden:   {"42501"},
		db.Missing:     {"42P01", "42703", "42883", "42804", "42846", "3F000"},
		db.Internal:    {"XX000", "XX001", "XX002"},
		db.Other:       {"0A000", "25001", "25P01", "25P02", "42601", "42P04", "42P07", "55000", "55P02", "57000", "3B001", "F0000", "HV000", ""},
	} {
		for _, code := range codes {
			err := fmt.Errorf("list jobs: %w", &pgconn.PgError{Code: code})
			require.Equal(t, class, db.ClassOf(err), code)
			require.Equal(t, code, db.Code(err))
		}
	}
	require.Empty(t, db.Code(io.EOF))
}

// What is no answer of the server.
func TestClassOf_ErrorsOfTheConnection(t *testing.T) {
	t.Parallel()
	refused := func(code string) error { return errors.Join(&pgconn.PgError{Code: code}) }
	for _, c := range []struct {
		err  error
		want db.Class
	}{
		{nil, db.Other},
		{errors.New("a writer's own"), db.Other},
		{context.Canceled, db.Other},
		{pgx.ErrNoRows, db.Other},
		{context.DeadlineExceeded, db.NoAnswer},
		{&net.OpError{Op: "read", Err: context.DeadlineExceeded}, db.NoAnswer},
		{io.EOF, db.Unreachable},
		{io.ErrUnexpectedEOF, db.Unreachable},
		{net.ErrClosed, db.Unreachable},
		{fmt.Errorf("receive: %w", pgconn.ErrConnClosed), db.Unreachable},
		{syscall.ECONNRESET, db.Unreachable},
		{fmt.Errorf("write: %w", syscall.EPIPE), db.Unreachable},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, db.Unreachable},
		{connecting(t, context.DeadlineExceeded), db.Unreachable},
		{connecting(t, pgconn.ErrStandbyConnection), db.Unreachable},
		{connecting(t, refused("57P03")), db.Unreachable},
		{connecting(t, refused("53300")), db.Unreachable},
		{connecting(t, refused("XX000")), db.Unreachable},
		{connecting(t, refused("28P01")), db.Refused},
		{connecting(t, refused("3D000")), db.Refused},
		{connecting(t, refused("42501")), db.Refused},
		{fmt.Errorf("%w: %w", db.ErrStandby, refused("0A000")), db.ReadOnly},
	} {
		require.Equal(t, c.want, db.ClassOf(c.err), "%v", c.err)
	}
}

// A pool may hand out a connection that has ended.
func TestClassOf_ConnectionThatIsClosed(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), dbtest.NewEmpty(t).DSN)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	_, err = conn.Exec(t.Context(), "SELECT 1")
	require.ErrorContains(t, err, "conn closed")
	require.Equal(t, db.Unreachable, db.ClassOf(err))
}

// connecting returns the error of a connection that fails by cause.
func connecting(t *testing.T, cause error) error {
	t.Helper()
	config, err := pgconn.ParseConfig("postgres://u@127.0.0.1:1/d")
	require.NoError(t, err)
	config.DialFunc = func(context.Context, string, string) (net.Conn, error) { return nil, cause }
	_, err = pgconn.ConnectConfig(t.Context(), config)
	require.ErrorAs(t, err, new(*pgconn.ConnectError))
	return err
}

func TestClass_PassesAndOfRows(t *testing.T) {
	t.Parallel()
	for class, want := range map[db.Class][2]bool{
		db.Other: {}, db.Forbidden: {}, db.Missing: {}, db.Internal: {},
		db.Unreachable: {true}, db.Refused: {true}, db.NoAnswer: {true}, db.TooSlow: {true}, db.Locked: {true},
		db.Conflict: {true}, db.Shortage: {true}, db.ReadOnly: {true}, db.Unprepared: {true},
		db.Invalid: {false, true}, db.Violation: {false, true}, db.Raised: {false, true},
	} {
		require.Equal(t, want, [2]bool{class.Passes(), class.OfRows()}, class)
	}
}
