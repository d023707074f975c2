// Package operation defines what an operation is, for the packages of the subjects under admin and for
// the command line, the API and the console. It knows no subject.
//
// # Operations
//
// An [Operation] is a name ("lanes pause"), the help for people, the least [Role] that may
// do it, whether it changes something, and three functions' worth of types: an input
// struct, whose fields are the parameters, a function that does it, and one that tells the
// result in text. [Define] makes one of a typed function; package admin lists them all. The
// command line builds its commands from that list; nothing about an operation is written a
// second time.
//
// # Parameters
//
// A field of the input with one of these tags is a parameter ([Param]):
//
//	arg:"LANE"        an argument by its place; "[LANE]" may be left out, "ID..." takes the rest
//	flag:"limit"      a flag
//	change:"priority" a key of KEY=VALUE; the field's type is a [Change]
//
// An argument "[ID]..." takes none as well. A key's column is another name of it, whose
// values have a unit that is not written. A parameter with file:"true" is long: the command
// line also takes the name of a file with it; one with secret:"true" it takes from a file or a
// prompt alone. Beside it stand help, label (what help shows
// for a flag's value), min, max, default, allowed (what an error says may be given), reset
// (the words that take a Change back), is (what an argument is, for errors), list:"one" (a text is one of several, whatever commas
// it has) and required:"true"; local:"true" is for the command line alone. A struct that is
// embedded adds its fields. The field's type decides what is understood: strings, numbers
// and switches as they are, pointers to them where "not given" differs from zero, slices for
// what may be given several times, and any type that implements encoding.TextUnmarshaler,
// whose error says what is allowed.
//
// # Questions
//
// What a person should agree to first is the operation's Confirm. The command line asks,
// unless it is told beforehand; whoever writes a program has agreed.
//
// # Results
//
// A result is a plain struct, or a [List] of such, with one form in JSON, which is the
// struct's own, and one in text. An operation may return a result and an error as well: it
// did a part, or found less than it looked for. The result is then shown before the error. A result that is as asked for, and tells of something that is not as it should
// be, has a method Verdict (see [Verdict]): the command line ends with that error, and over
// HTTP it is an answer like any other.
//
// # Receipts
//
// Run answers an act with an [Acted]: the result, which is an object in JSON, and a
// [Receipt], which is one more field of it and one line of text among the remarks. A result that
// is not one object, in force from now on, has a method Affected (receipt.go).
//
// # Versions
//
// An act on one object may expect the version that its caller read ([Precondition]): the id of the
// newest act on the object. The transaction of the act checks the version under a lock of the
// object, before any other statement; a [StaleError] lists the changes since. An input with a
// precondition embeds [VersionFlag] and has a method Resource; a result that shows one object with its
// version is [Versioned].
//
// # Streams
//
// What has more to say than one struct holds, or has not all of it at once, is a stream
// ([DefineStream]): its items come one after the other, each a plain struct or a slice of such,
// and at the end a result. Text tells each item as it comes; one without a text is for programs,
// as CSV or JSON. A stream ends with its context,
// without an error. What looks again and again, for many at once, looks once for all of them
// (package jobs).
//
// # Roles
//
// Run refuses what the role in [Env] may not do ([DeniedError]), whoever calls. Who has the
// database's URL has the role Admin: the command line. Over HTTP it is the token's.
//
// What is said to whom is masked in results, items and errors for roles below Operator. The tag
// mask of a field says so, wherever its type is from, and every field that can hold a text has
// it or is listed in testdata/plain.txt (mask.go).
//
// # Errors
//
// What was given and cannot be used is an [InvalidError], which names the parameter and
// what is allowed. An [AdvisedError] says what to do next, in the words of the command line.
// An [UnavailableError] reports a server that does not answer, a [HeldError] an object that
// another process has locked. Other errors are those of the packages below. errkind.Of returns
// the kind of each. An act whose answer was lost may have taken effect ([UnknownOutcomeError]).
package operation
