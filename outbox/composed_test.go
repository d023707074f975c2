package outbox_test

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox"
)

func TestAddressHash_IsTheSHA256OfTheText(t *testing.T) {
	t.Parallel()
	require.Equal(t, "936a185caaa266bb9cbe981e9e05cb78cd732b0b3280eb944412bb6f8f8f07af", fmt.Sprintf("%x", outbox.AddressHash("helloworld")))
	sum := sha256.Sum256([]byte(`{"endpoint": "x"}`))
	require.Equal(t, sum[:], outbox.AddressHash(`{"endpoint": "x"}`))
}
