package wire

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Hello is what a client says of itself.
type Hello struct {
	MinVersion, MaxVersion uint16
	Features               uint32
	// Cluster is the one that is meant; zeros: any.
	Cluster [16]byte
	// Token and Client have ShortMax bytes at most.
	Token, Client string
}

// AppendHello appends HELLO.
func AppendHello(out []byte, requestID uint64, hello *Hello) []byte {
	length := 24 + 1 + len(hello.Token) + 1 + len(hello.Client)
	out = Header{BodyLen: uint32(length), Op: OpHello, RequestID: requestID}.Append(out)
	out = appendU16(out, hello.MinVersion)
	out = appendU16(out, hello.MaxVersion)
	out = appendU32(out, hello.Features)
	out = append(out, hello.Cluster[:]...)
	out = appendShort(out, hello.Token)
	return appendShort(out, hello.Client)
}

// Request is any request but HELLO. Which fields count depends on Op.
type Request struct {
	Op uint8
	// Order of NEXT, ARRAY, RUNS, SEQ_ARRAY and SEQ_RUNS.
	Order uint8
	// Contiguous asks SEQ_RUNS for one run.
	Contiguous bool
	// Count of ids; of SEQ_LIST the limit.
	Count uint32
	// WaitMS is how long ARRAY, RUNS and their likes may take, in milliseconds.
	WaitMS uint32
	// ID of DECODE and PROVENANCE.
	ID uint64
	// Name of a sequence.
	Name string
	// Prefix and After of SEQ_LIST.
	Prefix, After string
	// Text is the JSON of SEQ_CREATE and SEQ_ALTER, and the bytes of PING.
	Text string
}

// Wait is how long the server may take because the request says so.
func (r *Request) Wait() time.Duration {
	switch r.Op {
	case OpArray, OpRuns, OpSeqArray, OpSeqRuns:
		if r.WaitMS > WaitCapMS {
			return WaitCapMS * time.Millisecond
		}
		return time.Duration(r.WaitMS) * time.Millisecond
	}
	return 0
}

// Check says what every server would refuse of the request as BAD_REQUEST. Counts are left to the server, which knows
// its own limit.
func (r *Request) Check() error {
	switch r.Op {
	case OpNext, OpArray, OpRuns:
		if r.Order > OrderOrdered {
			return fmt.Errorf("order %d is none: any, fresh and ordered are", r.Order)
		}
	case OpPing:
		if len(r.Text) > PingMax {
			return fmt.Errorf("a PING of %d bytes is too long: %d are allowed", len(r.Text), PingMax)
		}
	case OpDecode, OpProvenance:
		if r.ID > LargestID {
			return fmt.Errorf("%d is no id: ids have 63 bits, up to %d", r.ID, uint64(LargestID))
		}
	case OpSeqArray, OpSeqRuns:
		if r.Order != OrderAny && r.Order != OrderOrdered {
			return fmt.Errorf("order %d is none of a sequence: any and ordered are", r.Order)
		}
		return CheckName(r.Name)
	case OpSeqCreate, OpSeqAlter:
		if !utf8.ValidString(r.Text) {
			return fmt.Errorf("the settings are not UTF-8")
		}
		// A longer one would end the connection, for all its callers.
		if size := 1 + len(r.Name) + len(r.Text); size > RequestMax {
			return fmt.Errorf("name and settings have %d bytes, and at most %d are allowed", size, RequestMax)
		}
		return CheckName(r.Name)
	case OpSeqNext, OpSeqInfo:
		return CheckName(r.Name)
	case OpSeqList:
		for _, part := range []string{r.Prefix, r.After} {
			if len(part) > NameMax {
				return fmt.Errorf("a prefix or name of %d bytes is too long: %d are allowed", len(part), NameMax)
			}
			if !utf8.ValidString(part) {
				return fmt.Errorf("a prefix or name is not UTF-8")
			}
		}
	}
	return nil
}

// CheckName says why a text cannot be the name of a sequence.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("a name of a sequence has 1 to %d bytes, and this one has none", NameMax)
	case len(name) > NameMax:
		return fmt.Errorf("a name of a sequence has 1 to %d bytes, and this one has %d", NameMax, len(name))
	case !utf8.ValidString(name):
		return fmt.Errorf("a name of a sequence is UTF-8, and this one is not")
	case strings.IndexFunc(name, unicode.IsControl) >= 0:
		return fmt.Errorf("a name of a sequence has no control characters, and this one has")
	case strings.TrimSpace(name) != name:
		return fmt.Errorf("a name of a sequence neither begins nor ends with a space, and this one does")
	case name[0] == '@':
		return fmt.Errorf("a name of a sequence does not begin with @, and this one does")
	}
	return nil
}

// AppendRequest appends a request that Check found nothing wrong with.
func AppendRequest(out []byte, requestID uint64, r *Request) []byte {
	header := Header{Op: r.Op, RequestID: requestID}
	switch r.Op {
	case OpNext:
		if r.Order == OrderAny {
			return header.Append(out)
		}
		header.BodyLen = 1
		return append(header.Append(out), r.Order)
	case OpArray, OpRuns:
		header.BodyLen = 12
		return appendBulk(header.Append(out), r, 0)
	case OpDecode, OpProvenance:
		header.BodyLen = 8
		return appendU64(header.Append(out), r.ID)
	case OpSeqNext, OpSeqInfo:
		header.BodyLen = uint32(1 + len(r.Name))
		return appendShort(header.Append(out), r.Name)
	case OpSeqArray, OpSeqRuns:
		contiguous := byte(0)
		if r.Contiguous && r.Op == OpSeqRuns {
			contiguous = 1
		}
		header.BodyLen = uint32(12 + 1 + len(r.Name))
		return appendShort(appendBulk(header.Append(out), r, contiguous), r.Name)
	case OpSeqList:
		header.BodyLen = uint32(4 + 1 + len(r.Prefix) + 1 + len(r.After))
		out = appendU32(header.Append(out), r.Count)
		return appendShort(appendShort(out, r.Prefix), r.After)
	case OpSeqCreate, OpSeqAlter:
		header.BodyLen = uint32(1 + len(r.Name) + len(r.Text))
		return append(appendShort(header.Append(out), r.Name), r.Text...)
	case OpPing:
		header.BodyLen = uint32(len(r.Text))
		return append(header.Append(out), r.Text...)
	default:
		return header.Append(out)
	}
}

func appendBulk(out []byte, r *Request, contiguous byte) []byte {
	out = appendU32(out, r.Count)
	out = appendU32(out, r.WaitMS)
	return append(out, r.Order, contiguous, 0, 0)
}

// appendShort appends a byte of length and the text, which Check has bounded.
func appendShort(out []byte, text string) []byte {
	return append(append(out, byte(len(text))), text...)
}
