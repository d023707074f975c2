package jetstream

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox"
)

func FuzzItem_ReadsWhatItWrites(f *testing.F) {
	f.Add(int64(1), int64(2), int64(3), "7d1f0c52-0e6c-4f4e-9a9e-0d7f1c5b2a10", "a lane", []byte("1 2 3 e "))
	f.Add(int64(-1), int64(0), int64(1<<40), "e", "", []byte("1 2"))
	f.Fuzz(func(t *testing.T, job, channel, push int64, epoch, lane string, foreign []byte) {
		_, _ = decodeItem(foreign) // which may be anything
		_, _ = decodeCount(foreign)
		if epoch == "" || strings.Contains(epoch, " ") {
			return
		}
		want := item{Copy: outbox.Copy{Key: outbox.Key{JobID: job, ChannelID: channel}, Push: push}, epoch: epoch, lane: lane}
		got, err := decodeItem(want.encode())
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

func TestCount_ReadsWhatItWrites(t *testing.T) {
	t.Parallel()
	want := count{Epoch: "7d1f0c52-0e6c-4f4e-9a9e-0d7f1c5b2a10", First: 3, Last: 17}
	got, err := decodeCount(want.encode())
	require.NoError(t, err)
	require.Equal(t, want, got)
	for _, foreign := range []string{"", "{}", `{"epoch":"e","first":3,"last":2}`, "17"} {
		_, err := decodeCount([]byte(foreign))
		require.ErrorIs(t, err, errNotOurs)
	}
}

func TestBroker_RefusesOldServers(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2.12.0", "2.12.15", "2.13.0-beta", "3.0.0"} {
		require.NoError(t, fits(version))
	}
	for _, version := range []string{"2.9.10", "2.11.4", "1.4", "", "new"} {
		require.Error(t, fits(version))
	}
}
