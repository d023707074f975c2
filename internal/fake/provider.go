package fake

import "slices"

// Provider is one of the providers that are played.
type Provider string

// The providers.
const (
	Webhook  Provider = "webhook"
	SMS      Provider = "sms"
	FCM      Provider = "fcm"
	APNs     Provider = "apns"
	WebPush  Provider = "webpush"
	SMTP     Provider = "smtp"
	AlimTalk Provider = "alimtalk"
)

// Providers returns every provider, in the order of summaries.
func Providers() []Provider {
	return []Provider{Webhook, SMS, FCM, APNs, WebPush, SMTP, AlimTalk}
}

// What else a fault may be ordered for.
const (
	targetToken    = "token"    // FCM's OAuth answers
	targetReceipts = "receipts" // AlimTalk's results
	targetAll      = "all"      // every provider, but neither of the two above
)

// targets returns what a fault may be ordered for.
func targets() []string {
	var names []string
	for _, p := range Providers() {
		names = append(names, string(p))
	}
	return append(names, targetToken, targetReceipts, targetAll)
}

// played reports whether name is a provider's.
func played(name string) bool { return slices.Contains(Providers(), Provider(name)) }
