package provider

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"
)

func webpushRaw(t *testing.T, text string) []byte {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(text)
	require.NoError(t, err)
	return b
}

// RFC 8291 §5 and Appendix A, byte for byte.
func TestEncrypt_EqualsTheVectorOfRFC8291(t *testing.T) {
	t.Parallel()
	to, err := parseSubscription(`{
		"endpoint": "https://push.example.net/push/JzLQ3raZJfFBR0aqvOMsLrt54w4rJUsV",
		"keys": {
			"p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
			"auth": "BTBZMqHH6r4Tts7J_aSIgg"
		}
	}`, false)
	require.NoError(t, err)
	local, err := ecdh.P256().NewPrivateKey(webpushRaw(t, "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"))
	require.NoError(t, err)
	require.Equal(t, "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8",
		base64.RawURLEncoding.EncodeToString(local.PublicKey().Bytes()))
	body, err := encryptPush([]byte("When I grow up, I want to be a watermelon"), to, local, webpushRaw(t, "DGv6ra1nlYgDCS1FRnbzlw"))
	require.NoError(t, err)
	require.Equal(t, "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27ml"+
		"mlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPT"+
		"pK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN",
		base64.RawURLEncoding.EncodeToString(body))
}

// The largest payload fills one record to the byte; one byte more is refused.
func TestEncrypt_FillsOneRecordAtMost(t *testing.T) {
	t.Parallel()
	require.Equal(t, 3993, maxPlain)
	browser, err := ecdh.P256().GenerateKey(rand.Reader)
	require.NoError(t, err)
	to := subscription{public: browser.PublicKey(), secret: make([]byte, authBytes)}
	body, err := encryptPush(bytes.Repeat([]byte("x"), maxPlain), to, browser, make([]byte, saltBytes))
	require.NoError(t, err)
	require.Len(t, body, recordSize)
	_, err = encryptPush(bytes.Repeat([]byte("x"), maxPlain+1), to, browser, make([]byte, saltBytes))
	require.ErrorIs(t, err, errRecordTooLarge)
	require.EqualError(t, err, "payload is too large: it has 3994 bytes; the maximum is 3993")
}

// Whatever an address holds, it is read or refused, and a refusal repeats nothing of it.
func FuzzParseSubscription(f *testing.F) {
	f.Add(`{"endpoint":"https://push.example/x","keys":{"p256dh":"BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4","auth":"BTBZMqHH6r4Tts7J_aSIgg"}}`)
	f.Add(`{"endpoint":"http://127.0.0.1/","keys":{}}`)
	f.Add(`[]`)
	f.Add(``)
	f.Fuzz(func(t *testing.T, address string) {
		s, err := parseSubscription(address, false)
		if err != nil {
			require.Empty(t, s)
			return
		}
		require.Equal(t, "https", s.endpoint.Scheme)
		require.NotEmpty(t, s.endpoint.Hostname())
		require.Len(t, s.secret, authBytes)
		require.Len(t, s.public.Bytes(), pointBytes)
	})
}
