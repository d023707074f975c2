package fake

// Provider is the name of a fake provider.
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
