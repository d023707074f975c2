// Package apns delivers messages to Apple devices by the Apple Push Notification service:
// one HTTP/2 request per device token, with a provider token for authority.
//
//	POST /3/device/{token} ─► 200                                        accepted
//	                          410, BadDeviceToken, DeviceTokenNotForTopic invalid address
//	                          403 ExpiredProviderToken                    new token, once more
//	                          429, 500, 503, IdleTimeout                  retryable
//	                          other 4xx                                   permanent
//	                          no answer                                   unknown, see httpcall
//
// Requests, headers and reasons are those of Apple's "Sending notification requests to
// APNs" and "Handling notification responses from APNs".
//
// A channel's address is the device token in hexadecimal. The device is sent
//
//	{"aps": {"alert": {"title", "body"}, "sound": …}, "data": {…}, "key": "…"}
//
// where data is the message's data without its member aps: that one, an object, is merged
// into aps (badge, category, thread-id, …), except for alert.
//
// # Invariants
//
//  1. The idempotency key is apns-id and apns-collapse-id: a device that gets two attempts
//     of one message shows one notification. It stands in the payload as well, as key.
//  2. A provider token is used for at most 40 minutes (Apple refuses it after an hour)
//     and replaced at most once in 20 minutes (Apple refuses more often), also when Apple
//     calls it expired.
//  3. A message over 4,096 bytes is permanent, without a call.
//
// # What it does not promise
//
// That a message was shown: APNs answers when it has taken it, keeps one per device and
// collapse id while the device is away, and drops it after Config.Expiration.
package apns
