package provider

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/sender"
)

// A number is never changed by dropping characters: it is read as it is meant, or refused.
func TestReadNumber(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"010-1234-5678": "01012345678", "010.1234.5678": "01012345678", " 01012345678 ": "01012345678", "+82 10-1234-5678": "821012345678",
		"(02) 123-4567": "021234567", "+1 (212) 555-0123": "12125550123", "1-212-555-0123": "12125550123", "+33 1 23 45 67 89": "33123456789",
		"+44 (0)20 7946 0958": "442079460958", "+82 (0)10 1234 5678": "821012345678", "+82(0)10.1234.5678": "821012345678",
		"\u202a+82 10-1234-5678\u202c": "821012345678", "010\u20111234\u20135678": "01012345678", "010\u00a01234\u202f5678\ufeff": "01012345678",
		"+44 ( 0 )20 7946 0958": "442079460958", "+44 (0 )20 7946 0958": "442079460958", "0049(0)30 1234567": "", "0049 (0) 30 1234567": "", "0049( 0 )30 1234567": "", "82(0)10 1234 5678": "", "02 (0)123 4567": "",
		"(0)10 1234 5678": "01012345678", "( 0 )10 1234 5678": "", "02) 123 4567": "",
		"010-1234-5678.0": "", "01012345678.0": "", "01012345678.00": "", "821012345678.0": "", "8.21E+11": "", "010--1234-5678": "", "+39 (0)6 1234567": "", "+44 (0) (0)20 7946 0958": "",
		"+44 (0)+20 7946 0958": "", "010-1234-567x": "", "０１０１２３４５６７８": "", "٠١٠١٢٣٤٥٦٧": "", "010-1234-5678, 010-8765-4321": "", "tel:01012345678": "", "(010 1234 5678": "",
		"() 01012345678": "", "-01012345678": "", "+": "", "": "", "++8210": "", "+82\n1012345678": "", "01012345678-": "",
	} {
		digits, _, ok := readNumber(text)
		require.Equal(t, want != "", ok, text)
		if ok {
			require.Equal(t, want, digits, text)
		}
	}
}

func FuzzReadNumber(f *testing.F) {
	f.Add("+44 (0)20 7946 0958")
	f.Fuzz(func(t *testing.T, text string) {
		if digits, _, ok := readNumber(text); ok {
			again, _, still := readNumber(digits)
			require.True(t, still)
			require.Equal(t, digits, again)
		}
	})
}

// By default an address is a telephone number, neither a short one nor an emergency's. A
// pattern of the operator's own replaces that, and digits still never changes a number.
func TestSMS_ReadsNumbers(t *testing.T) {
	t.Parallel()
	var got smsCall
	cfg := DefaultSMS()
	cfg.URL, cfg.ContentType, cfg.Body = smsCapture(t, &got), "text/plain", "{{.to | digits}} {{.to}}"
	s := open(t, cfg, smsNow)
	to := func(s Client, address string) sender.Result {
		d := smsDelivery()
		d.Address = address
		return send(t, s, d, long)
	}
	require.Equal(t, sender.Accepted, to(s, "\u202a+82 (0)10\u20111234\u00a05678\u202c").Class)
	require.Equal(t, "821012345678 +82 (0)10-1234 5678", got.body)
	for _, address := range []string{"+82", "112", "+82 112", "010-1234-5678.0", "+8210123456789012", "1588"} {
		require.Equal(t, refuseAddress("address", notNumber), to(s, address), address)
	}
	cfg.AddressPattern = `^[0-9.]+$`
	s = open(t, cfg, smsNow)
	require.Equal(t, sender.Accepted, to(s, "112").Class)
	require.Equal(t, "112 112", got.body)
	require.Equal(t, refuseAddress("address", "does not match address_pattern"), to(s, "+82"))
	require.Equal(t, refuseAddress("address", notNumber), to(s, "01012345678.0"))
	cfg.AddressPattern, cfg.Body = "", "{{.data.s | digits}}"
	require.Equal(t, refuseContent("content", "data.s is not a telephone number, and a template uses its digits"), to(open(t, cfg, smsNow), "01012345678"))
}
