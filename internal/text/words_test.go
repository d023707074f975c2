package text_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/text"
)

func TestShort_CountsDaysFromTwoOn(t *testing.T) {
	t.Parallel()
	require.Equal(t, "47h59m", text.Short(48*time.Hour-time.Minute))
	require.Equal(t, "8d 13h", text.Short(205*time.Hour+35*time.Minute))
}
