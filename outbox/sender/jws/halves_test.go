package jws

import (
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
)

// A number with leading zeros keeps its place: one signature in 128 has one.
func TestHalves_KeepTheirLength(t *testing.T) {
	t.Parallel()
	got := halves(big.NewInt(0x0102), big.NewInt(3))
	require.Len(t, got, 64)
	require.Equal(t, []byte{0, 1, 2}, got[29:32])
	require.Equal(t, []byte{0, 0, 3}, got[61:])
}
