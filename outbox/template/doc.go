// Package template makes the titles and bodies of messages: texts with values of the
// recipient in them.
//
//	Hello {{attributes.name | trim | default "friend"}}, {{attributes.count}} new answers
//	      └── value ──────┘ └─ functions, applied from left to right ─┘
//
//	value      locale, platform, external_id, time_zone, attributes.NAME
//	function   upper, lower, trim, default "text", truncate 1 to 200
//	{{"{{"}}   two braces
//
// NAME is 1 to 63 letters, digits and _, not beginning with a digit. The text of
// default has up to 200 characters and none of " { }. Blanks and tabs may stand around
// each part. Whatever else begins with {{ is an error; a text without {{ is a template
// that says itself.
//
// # Invariants
//
//  1. The grammar is that of belfry.template_problem, which refuses a bad template when
//     a job is enqueued: both call the same texts templates.
//  2. A template does nothing but put values in: no condition, no loop, no look at
//     anything else, and its cost is bounded by its own length.
//  3. A title has at most 200 characters and stands on one line, a body has at most
//     10,000, and one value at most 200; what is longer ends in ….
//  4. No control character of a value reaches the output, nor one that turns the
//     direction of the text around it.
//
// # Values
//
// A string attribute is its text, a number and a boolean what JSON writes. Whatever
// else, and an attribute that is not there, is empty. default stands in for a value
// that is empty or blank at that point of the chain.
//
// # Failure behaviour
//
// Parse names what is not allowed, and what is. Execution cannot fail.
//
// # What it does not promise
//
// upper and lower know no language: a Turkish i becomes I. Nothing is escaped: a sender
// whose format needs it escapes what it sends.
package template
