package console

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
)

// Of many streams one looks; the others take what was found last, and wait for nobody.
func TestGauges_NobodyWaitsForALook(t *testing.T) {
	t.Parallel()
	g, looks := new(senderStats), 0
	begun, goOn := make(chan struct{}), make(chan struct{})
	slow := func() ([]delivery.SenderState, error) {
		close(begun)
		<-goOn
		return []delivery.SenderState{{Name: "fcm", Waiting: 7}}, nil
	}
	done := make(chan map[string]string)
	go func() { done <- g.read(slow) }()
	<-begun
	require.Nil(t, g.read(func() ([]delivery.SenderState, error) { looks++; return nil, nil }))
	close(goOn)
	require.Equal(t, "7", (<-done)["sender.fcm.waiting"])
	require.Equal(t, "7", g.read(func() ([]delivery.SenderState, error) { looks++; return nil, nil })["sender.fcm.waiting"])
	require.Zero(t, looks)

	g.newest.Load().at = time.Now().Add(-statsInterval)
	fails := func() ([]delivery.SenderState, error) { looks++; return nil, errors.New("the database is away") }
	require.Nil(t, g.read(fails))
	require.Nil(t, g.read(fails))
	require.Equal(t, 1, looks, "one that failed is not repeated at once")
}
