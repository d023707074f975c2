package dbtest

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrivateDir_IsWhereTheVariableSays(t *testing.T) {
	t.Setenv(dirEnv, "/somewhere")
	dir, err := privateDir()
	require.NoError(t, err)
	require.Equal(t, "/somewhere", dir)
	require.NotEqual(t, memoryRoot, serverRoot(false))

	t.Setenv(dirEnv, "here")
	_, err = privateDir()
	require.EqualError(t, err, `BELFRY_TEST_DIR: "here" is not an absolute path`)
}

// In memory where there is room, on the disk where there is none: the server of a test
// that is to lose nothing is always there.
func TestPrivateDir_IsInMemoryWhereThereIsRoom(t *testing.T) {
	t.Setenv(dirEnv, "")
	dir, err := privateDir()
	require.NoError(t, err)
	room := roomInMemory(memoryRoot, memoryFree)
	require.Equal(t, room, filepath.Dir(dir) == memoryRoot)
	require.Equal(t, room, serverRoot(false) == memoryRoot)
	require.Equal(t, tempRoot(), serverRoot(true))
}

func TestRoomInMemory_NeedsMemoryAndRoom(t *testing.T) {
	t.Parallel()
	require.False(t, roomInMemory(memoryRoot, math.MaxUint64))
	require.False(t, roomInMemory(filepath.Join(memoryRoot, "belfry-none"), 0))
	require.False(t, roomInMemory("/", 0), "no memory")
}
