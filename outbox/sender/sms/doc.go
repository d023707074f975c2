// Package sms sends text messages through whatever gateway takes them by HTTP: method,
// URL, headers and body are templates of the configuration, and what an answer means is
// said there too.
//
//	sms:
//	  url: https://sms.example.com/v1/messages
//	  auth: bearer
//	  secret_file: /run/secrets/sms
//	  from: "+821012345678"
//	  body: '{"to": {{to | digits | json}}, "from": {{from | json}}, "text": {{text | json}}}'
//	  message_id_path: messages.0.id
//	  code_path: error.code
//	  success: {statuses: [201]}
//	  invalid_address: {codes: [invalid_number, "21211"]}
//
// # Templates
//
// {{name | escape}} stands for a value, escaped for where it stands; the escape is not
// optional, so no number and no text of a message can break out of its place:
//
//	path   in the URL's path    to key from secret job_id channel_id
//	query  in the URL's query   every value
//	(none) in headers           key from secret job_id channel_id
//	json   application/json     every value, as a JSON string with its quotes
//	form   application/x-www-form-urlencoded, every value
//	xml    application/xml, text/xml, every value
//	raw    text/plain           every value, as it is
//
// Values: to (the address), text (title and body, a line break between), title, body,
// key, from, secret, job_id, channel_id, external_id, category, locale, and data.NAME, a
// member of the message's data. The filter digits before the escape drops all but
// digits: {{to | digits | json}}.
//
// # The idempotency key
//
// It is sent as the header that idempotency_header names, Idempotency-Key unless changed,
// and is the value key for gateways that have their own place for it, such as a client
// reference. A gateway that knows neither sends a repeated request twice.
//
// # Answers
//
//	a code at code_path that a class lists ► that class
//	a status that a class lists ───────────► that class
//	2xx ───────────────────────────────────► accepted; where success lists statuses or
//	                                          codes and it is none of them: unknown
//	everything else ───────────────────────► as httpcall.ClassOf has it
//
// A code overrides the status beside it: many gateways answer 200 and say the rest in the
// body. A body that is no JSON, or was cut, has no code. A result's code is the status,
// and the gateway's code after it, as in "429 too_many_requests".
//
// By GET every call has a connection of its own: net/http repeats a GET by itself when a
// connection that was kept open breaks, and the message would be sent twice.
package sms
