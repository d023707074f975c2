package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// net/http logs what a server sends on an idle connection, which may be an answer with a recipient's data.
func TestProcess_LogsNoAnswerOfAProvider(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close()) }()
	p := start(t, []string{
		"BELFRY_DATABASE_URL=" + db.DSN,
		`BELFRY_SENDERS=[{"name": "hook", "kind": "webhook", "webhook": {"url": "http://` + listener.Addr().String() + `", "allow_http": true, "allow_addresses": ["127.0.0.1"], "secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]}}]`,
	}, "relay")
	_, err = db.Pool.Exec(t.Context(), `INSERT INTO belfry.channels (external_id, platform, addresses) VALUES ('u1', 'ios', '{"webhook": "x"}');
		INSERT INTO belfry.activities (channel_id, title, route) VALUES (1, 'Hello', '{webhook}')`)
	require.NoError(t, err)

	require.NoError(t, listener.SetDeadline(time.Now().Add(patience)))
	conn, err := listener.Accept()
	require.NoError(t, err, p.stderr.String())
	defer func() { require.NoError(t, conn.Close()) }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	reader := bufio.NewReader(conn)
	request, err := http.ReadRequest(reader)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, request.Body)
	require.NoError(t, err)
	_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	require.NoError(t, err)
	waitUntil(t, db.Pool, `SELECT status = 'SENT' FROM belfry.messages`)
	_, err = io.WriteString(conn, "HTTP/1.1 400 +821012345678\r\n\r\n")
	require.NoError(t, err)
	_, err = reader.ReadByte()
	require.ErrorIs(t, err, io.EOF, "it closes the connection, and has logged before")
	p.terminate(t)
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
	require.NotContains(t, p.stderr.String(), "82101234")
	require.NotContains(t, p.stderr.String(), "Unsolicited")
}
