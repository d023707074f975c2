package commands

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Text contains no request and no escape of roff.
func TestMan_TextMeansItself(t *testing.T) {
	t.Parallel()
	require.Equal(t, `\&.so /etc/passwd`, roffLine(".so /etc/passwd"))
	require.Equal(t, `\&'\-\en`, roffLine(`'-\n`))
}
