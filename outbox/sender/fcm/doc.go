// Package fcm sends push messages by Firebase Cloud Messaging, HTTP v1
// (https://firebase.google.com/docs/reference/fcm/rest/v1/projects.messages/send).
//
//	POST <endpoint>/v1/projects/<project>/messages:send
//	Authorization: Bearer <token of the service account>
//
//	{"message":{"token":"…","notification":{"title":"…","body":"…"},
//	  "data":{…,"belfry_key":"…"},
//	  "android":{"priority":"high","notification":{"tag":"…"}},
//	  "apns":{"headers":{"apns-collapse-id":"…"}}}}
//
// FCM has no place for an idempotency key: a message that is posted twice is sent twice.
// The key goes to the device instead, as data.belfry_key, by which an app can drop a
// repeat, and as the notification's tag on Android and the collapse id on iOS, by which
// the system replaces a notification already shown. There is no collapse_key: different
// messages never replace each other. Values of data that are no text become JSON text,
// for FCM takes nothing else.
//
//	200 with a name ─────────────────────────────────► accepted, the name as receipt
//	200 with anything else ──────────────────────────► unknown
//	UNREGISTERED; INVALID_ARGUMENT of the token ─────► invalid address
//	other INVALID_ARGUMENT, SENDER_ID_MISMATCH,
//	THIRD_PARTY_AUTH_ERROR, other 4xx ───────────────► permanent
//	QUOTA_EXCEEDED (429) ────────────────────────────► retryable, not before Retry-After, or a minute
//	UNAVAILABLE (503), INTERNAL (500) ───────────────► retryable
//	502, 504, no answer ─────────────────────────────► unknown
//	no access token ─────────────────────────────────► retryable, nothing was sent
//
// # Invariants
//
//  1. An access token is asked for once however many sends want it, is refreshed before it
//     expires, and after a 401 is replaced, unless it is younger than a minute, and the
//     message posted once more: a 401 says that the first was not accepted.
//  2. While the token's provider fails it is asked at most once a second, and a token
//     that is still good goes on being used.
//
// The token is had by a JSON Web Token signed with the service account's key, as in
// https://developers.google.com/identity/protocols/oauth2/service-account.
package fcm
