// Package operation defines operations for the packages of the subjects under admin, and for the command
// line, the API and the console. It imports no subject.
//
// # Operations
//
// An [Operation] has a name ("lanes pause"), a help text, the lowest [Role] that may run it, a flag for
// changes, and three parts with types: an input struct, whose fields are the parameters, a function that
// executes it, and a function that renders the result as text. [Define] combines them; package admin lists
// all operations. The command line, the API and the console derive their commands, routes and pages from
// that list.
//
// # Parameters
//
// A field of the input with one of these tags is a parameter ([Param]):
//
//	arg:"LANE"        a positional argument; "[LANE]" is optional, "ID..." takes one or more
//	flag:"limit"      a flag
//	change:"priority" a key of KEY=VALUE; the field's type is a [Change]
//
// An argument "[ID]..." takes any number. Further tags are:
//
//	help, label       the help of a flag, and the name of its value
//	min, max          the range of a number
//	default           the value of a new input
//	required:"true"   the parameter must be given
//	choices, allowed  the allowed values, as a list or in words for an error
//	values            the operation that lists the existing values
//	reset             the words that reset a Change
//	is                the description of an argument, for errors
//	column, unit      another name of a key, whose values are numbers of a unit
//	list:"one"        a text is one value of a list, although it contains commas
//	file:"true"       the command line accepts a file with the value
//	secret:"true"     the command line reads the value from a file or a prompt only
//	local:"true"      only the command line has the parameter
//
// An embedded struct adds its fields. The field's type determines the syntax: strings, numbers and switches,
// pointers to them if "not given" differs from zero, slices for repeated parameters, and types that implement
// encoding.TextUnmarshaler, whose error contains the allowed values.
//
// # Questions
//
// An operation with Confirm has a question that a person answers first. The command line asks it, unless a
// flag confirms it; a program confirms it by the request.
//
// # Results
//
// A result is a plain struct, or a [List] of such structs. It has one form in JSON, the struct's own, and one
// as text. An operation may return a result and an error, for example after it did a part of its work. The
// result is then shown before the error. A successful result that reports a problem, such as a failed check,
// has a method Verdict (see [Verdict]): the command line exits with that error, and HTTP responds as usual.
//
// # Receipts
//
// Run returns an [Acted] for an act: the result, which is an object in JSON, and a [Receipt], which is one
// more field of that object and one line among the remarks. A result that is not a single object, or has been
// in force for longer, has a method Affected (receipt.go).
//
// # Versions
//
// An act on one object may expect the version that its caller read ([Precondition]): the id of the newest act
// on the object. The transaction of the act checks the version under a lock of the object, before any other
// statement; a [StaleError] lists the changes since. An input with a precondition embeds [VersionFlag] and has
// a method Resource; a result that shows one object with its version is [Versioned].
//
// # Streams
//
// An operation with a large or continuous result is a stream ([DefineStream]): a sequence of items, each a
// plain struct or a slice of such structs, and a final result. Items are rendered as they arrive; a stream
// without a text is available as CSV or JSON. A stream ends without an error when its context ends. Streams
// that poll share the polls of the process (package jobs).
//
// # Roles
//
// Run rejects an operation that the role in [Env] does not allow ([DeniedError]). The command line has the role
// Admin, because it has the database's URL. A request by HTTP has the role of its token or session.
//
// Roles below Operator read results, items and errors without contents and recipients. The tag mask of a field
// marks them, in types of any package. Every field that can contain a text has the tag or is listed in
// testdata/plain.txt (mask.go).
//
// # Errors
//
// An [InvalidError] names the invalid parameter and the allowed values. An [AdvisedError] contains the next
// step as a command. An [UnavailableError] reports a server that does not answer, a [HeldError] an object that
// another process has locked, an [UnknownOutcomeError] an act that may have taken effect although its response
// was lost. Other errors are from the packages below. db.KindOf returns the kind of each.
package operation
