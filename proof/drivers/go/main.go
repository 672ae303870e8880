// The gocql driver's script: script HOST PORT, or script HOST PORT tls DIRECTORY LOGIN.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/apache/cassandra-gocql-driver/v2/lz4"
	"github.com/apache/cassandra-gocql-driver/v2/snappy"
	"gopkg.in/inf.v0"
)

const keyspace = "go_script"

type checks struct {
	name           string
	passed, failed int
}

func (c *checks) holds(what string, right bool, detail any) {
	if right {
		c.passed++
		return
	}
	c.failed++
	fmt.Printf("gocql %s: FAIL %s: %v\n", c.name, what, detail)
}

func (c *checks) equal(what string, got, expected any) {
	c.holds(what, reflect.DeepEqual(got, expected), fmt.Sprintf("got %#v, expected %#v", got, expected))
}

func (c *checks) noError(what string, err error) bool {
	c.holds(what, err == nil, err)
	return err == nil
}

func main() {
	port, err := strconv.Atoi(os.Args[2])
	if err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	if len(os.Args) > 3 {
		c := &checks{name: "tls"}
		tlsScript(c, os.Args[1], port, os.Args[4], os.Args[5])
		end(c.passed, c.failed)
	}
	passed, failed := 0, 0
	for _, combination := range []struct {
		version    int
		compressor gocql.Compressor
		name       string
	}{
		{0, nil, "negotiated"}, {5, lz4.LZ4Compressor{}, "v5 lz4"}, {5, nil, "v5"}, {4, lz4.LZ4Compressor{}, "v4 lz4"},
		{4, snappy.SnappyCompressor{}, "v4 snappy"}, {3, nil, "v3"},
	} {
		c := &checks{name: combination.name}
		script(c, os.Args[1], port, combination.version, combination.compressor)
		passed += c.passed
		failed += c.failed
	}
	end(passed, failed)
}

func end(passed, failed int) {
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
	os.Exit(0)
}

func connect(host string, port, version int, compressor gocql.Compressor, inside string) (*gocql.Session, error) {
	cluster := gocql.NewCluster(host)
	cluster.Port = port
	cluster.ProtoVersion = version
	cluster.Compressor = compressor
	cluster.Timeout = 30 * time.Second
	cluster.ConnectTimeout = 30 * time.Second
	cluster.Keyspace = inside
	cluster.Consistency = gocql.One
	return cluster.CreateSession()
}

func script(c *checks, host string, port, version int, compressor gocql.Compressor) {
	admin, err := connect(host, port, version, compressor, "")
	if !c.noError("connect", err) {
		return
	}
	defer admin.Close()
	c.noError("drop keyspace", admin.Query("DROP KEYSPACE IF EXISTS "+keyspace).Exec())
	c.noError("create keyspace", admin.Query("CREATE KEYSPACE "+keyspace+" WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}").Exec())
	session, err := connect(host, port, version, compressor, keyspace)
	if !c.noError("connect to the keyspace", err) {
		return
	}
	defer session.Close()
	scalars(c, session, version)
	collections(c, session)
	statements(c, session, version)
	conditions(c, session)
	counters(c, session)
	paging(c, session)
	indexes(c, session)
	metadata(c, session)
	badStatements(c, session)
	concurrency(c, session)
	// The keyspace of the last part is left: the proof that what is accepted survives reads it.
}

func scalars(c *checks, session *gocql.Session, version int) {
	timeuuid, _ := gocql.ParseUUID("50554d6e-29bb-11e5-b345-feff819cdc9f")
	random, _ := gocql.ParseUUID("f47ac10b-58cc-4372-a567-0e02b2c3d479")
	huge, _ := new(big.Int).SetString("-10000000000000000000000000000000000000000", 10)
	decimal, _ := new(inf.Dec).SetString("-12345678901234567890.123")
	values := []struct {
		kind  string
		value any
	}{
		{"ascii", "plain"}, {"bigint", int64(-1 << 63)}, {"blob", []byte{0, 255}}, {"boolean", true},
		{"date", time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)}, {"decimal", decimal}, {"double", 2.5},
		{"duration", gocql.Duration{Months: 14, Days: 3, Nanoseconds: 14_400_000_000_000}}, {"float", float32(-0.5)},
		{"inet", net.ParseIP("2001:db8::1")}, {"int", -1 << 31}, {"smallint", int16(-32768)}, {"text", "Grüße €𝄞"},
		{"time", 45_296_789_012_345 * time.Nanosecond}, {"timestamp", time.UnixMilli(1_709_209_815_123).UTC()},
		{"timeuuid", timeuuid}, {"tinyint", int8(-128)}, {"uuid", random}, {"varint", huge},
	}
	var columns, names, markers []string
	var row, nulls []any
	for _, v := range values {
		if version == 3 && strings.Contains("date duration smallint time tinyint", v.kind) {
			continue // v3 has no codes for these types
		}
		names = append(names, "c_"+v.kind)
		columns = append(columns, "c_"+v.kind+" "+v.kind)
		markers = append(markers, "?")
		row = append(row, v.value)
		nulls = append(nulls, nil)
	}
	if !c.noError("create table", session.Query("CREATE TABLE scalars (k int PRIMARY KEY, "+strings.Join(columns, ", ")+")").Exec()) {
		return
	}
	insert := "INSERT INTO scalars (k, " + strings.Join(names, ", ") + ") VALUES (?, " + strings.Join(markers, ", ") + ")"
	c.noError("insert", session.Query(insert, append([]any{1}, row...)...).Exec())
	c.noError("insert nulls", session.Query(insert, append([]any{2}, nulls...)...).Exec())
	for n, name := range names {
		got := reflect.New(reflect.TypeOf(row[n]))
		err := session.Query("SELECT " + name + " FROM scalars WHERE k = 1").Scan(got.Interface())
		c.noError(name, err)
		c.equal(name, fmt.Sprint(got.Elem().Interface()), fmt.Sprint(row[n]))
		absent := reflect.New(reflect.PointerTo(reflect.TypeOf(row[n])))
		c.noError(name+" null", session.Query("SELECT "+name+" FROM scalars WHERE k = 2").Scan(absent.Interface()))
		if kind := reflect.TypeOf(row[n]).Kind(); kind != reflect.Slice && kind != reflect.Pointer {
			c.holds(name+" null", absent.Elem().IsNil(), absent.Elem())
		}
	}
}

type address struct {
	Street string `cql:"street"`
	Zip    int    `cql:"zip"`
}

func collections(c *checks, session *gocql.Session) {
	c.noError("create type", session.Query("CREATE TYPE address (street text, zip int)").Exec())
	c.noError("create collections", session.Query(`CREATE TABLE collections (k int PRIMARY KEY, l list<int>, s set<text>, m map<text, int>,
		n map<int, frozen<list<frozen<set<int>>>>>, ve vector<float, 3>, u address, us frozen<list<frozen<address>>>)`).Exec())
	home, other := address{"Main St", 12345}, address{"B", 2}
	c.noError("insert collections", session.Query("INSERT INTO collections (k, l, s, m, n, ve, u, us) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		1, []int{3, 1}, []string{"b", "a"}, map[string]int{"one": 1, "two": 2}, map[int][][]int{5: {{1, 2}}},
		[]float32{1.5, -2, 0.25}, home, []address{home, other}).Exec())
	var l []int
	var s []string
	var m map[string]int
	var n map[int][][]int
	var ve []float32
	var u address
	var us []address
	c.noError("select collections", session.Query("SELECT l, s, m, n, ve, u, us FROM collections WHERE k = 1").Scan(&l, &s, &m, &n, &ve, &u, &us))
	c.equal("list", l, []int{3, 1})
	c.equal("set", s, []string{"a", "b"})
	c.equal("map", m, map[string]int{"one": 1, "two": 2})
	c.equal("nested", n, map[int][][]int{5: {{1, 2}}})
	c.equal("vector", ve, []float32{1.5, -2, 0.25})
	c.equal("user type", u, home)
	c.equal("user types", us, []address{home, other})
	c.noError("update collections", session.Query("UPDATE collections SET l = l + ?, s = s - ?, m[?] = ? WHERE k = 1", []int{9}, []string{"a"}, "three", 3).Exec())
	c.noError("select again", session.Query("SELECT l, s, m FROM collections WHERE k = 1").Scan(&l, &s, &m))
	c.equal("list append", l, []int{3, 1, 9})
	c.equal("set remove", s, []string{"b"})
	c.equal("map put", m, map[string]int{"one": 1, "two": 2, "three": 3})
	c.noError("create tuples", session.Query("CREATE TABLE tuples (k int PRIMARY KEY, t tuple<int, text>)").Exec())
	c.noError("insert tuple", session.Query("INSERT INTO tuples (k, t) VALUES (?, (?, ?))", 1, 7, "seven").Exec())
	var number int
	var word string
	c.noError("select tuple", session.Query("SELECT t FROM tuples WHERE k = 1").Scan(&number, &word))
	c.equal("tuple", fmt.Sprint(number, word), fmt.Sprint(7, "seven"))
}

func statements(c *checks, session *gocql.Session, version int) {
	c.noError("create wide", session.Query("CREATE TABLE wide (p int, c int, s text static, v text, PRIMARY KEY (p, c)) WITH CLUSTERING ORDER BY (c DESC)").Exec())
	c.noError("insert one", session.Query("INSERT INTO wide (p, c, s, v) VALUES (?, ?, ?, ?)", 1, 1, "static", "one").Exec())
	c.noError("insert two", session.Query("INSERT INTO wide (p, c, v) VALUES (?, ?, ?)", 1, 2, "two").WithTimestamp(1234).Exec())
	if version != 3 {
		c.noError("unset", session.Query("INSERT INTO wide (p, c, s, v) VALUES (?, ?, ?, ?)", 1, 2, gocql.UnsetValue, gocql.UnsetValue).Exec())
	}
	batch := session.Batch(gocql.LoggedBatch)
	batch.Query("INSERT INTO wide (p, c, v) VALUES (?, ?, ?)", 1, 4, "four")
	batch.Query("DELETE FROM wide WHERE p = 1 AND c = 1")
	c.noError("batch", batch.Exec())
	var rows []string
	iter := session.Query("SELECT c, s, v, writetime(v) FROM wide WHERE p = 1").Iter()
	var number int
	var static, value string
	var writetime int64
	for iter.Scan(&number, &static, &value, &writetime) {
		rows = append(rows, fmt.Sprint(number, static, value, writetime == 1234))
	}
	c.noError("rows", iter.Close())
	c.equal("rows", rows, []string{fmt.Sprint(4, "static", "four", false), fmt.Sprint(2, "static", "two", true)})
	iter = session.Query("SELECT count(*) FROM wide").Iter()
	warnings := iter.Warnings()
	c.noError("count", iter.Close())
	if version != 3 {
		c.equal("warnings", warnings, []string{"Aggregation query used without partition key"})
	}
}

func conditions(c *checks, session *gocql.Session) {
	c.noError("create jobs", session.Query("CREATE TABLE jobs (n int PRIMARY KEY, owner text)").Exec())
	insert := "INSERT INTO jobs (n, owner) VALUES (?, ?) IF NOT EXISTS"
	var n int
	var owner string
	applied, err := session.Query(insert, 1, "ada").ScanCAS(&n, &owner)
	c.noError("insert if not exists", err)
	c.equal("applied", applied, true)
	applied, err = session.Query(insert, 1, "bob").ScanCAS(&n, &owner)
	c.noError("insert again", err)
	c.equal("refused", fmt.Sprintf("%v %v %v", applied, n, owner), "false 1 ada")
	update := "UPDATE jobs SET owner = ? WHERE n = 1 IF owner = ?"
	applied, err = session.Query(update, "bob", "eve").ScanCAS(&owner)
	c.noError("update if", err)
	c.equal("another owner", fmt.Sprintf("%v %v", applied, owner), "false ada")
	found := map[string]any{}
	applied, err = session.Query(update, "bob", "ada").MapScanCAS(found)
	c.noError("update if again", err)
	c.equal("the owner", applied, true)
	batch := session.Batch(gocql.LoggedBatch)
	batch.Query(update, "cid", "bob")
	applied, _, err = session.ExecuteBatchCAS(batch)
	c.noError("batch", err)
	c.equal("batch applied", applied, true)
	c.noError("serial read", session.Query("SELECT owner FROM jobs WHERE n = 1").Consistency(gocql.Serial).Scan(&owner))
	c.equal("owner", owner, "cid")
}

func counters(c *checks, session *gocql.Session) {
	c.noError("create hits", session.Query("CREATE TABLE hits (page text, day int, n counter, total counter static, PRIMARY KEY (page, day))").Exec())
	var group sync.WaitGroup
	for i := 0; i < 60; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			err := session.Query("UPDATE hits SET n = n + ? WHERE page = 'home' AND day = ?", int64(2), i%3).Exec()
			if err != nil {
				c.noError("increment", err)
			}
		}()
	}
	group.Wait()
	// Of increments of a static counter at the same time, Cassandra loses some.
	for i := 0; i < 60; i++ {
		c.noError("increment total", session.Query("UPDATE hits SET total = total + 1 WHERE page = 'home'").Exec())
	}
	batch := session.Batch(gocql.CounterBatch)
	batch.Query("UPDATE hits SET n = n - ? WHERE page = 'home' AND day = 0", int64(50))
	c.noError("counter batch", session.ExecuteBatch(batch))
	var n, total int64
	c.noError("select counters", session.Query("SELECT n, total FROM hits WHERE page = 'home' AND day = 0").Scan(&n, &total))
	c.equal("sums", fmt.Sprint(n, total), "-10 60")
}

func paging(c *checks, session *gocql.Session) {
	c.noError("create pages", session.Query("CREATE TABLE pages (p int, c int, PRIMARY KEY (p, c))").Exec())
	var expected []string
	for p := range 5 {
		for n := range 11 {
			c.noError("insert page", session.Query("INSERT INTO pages (p, c) VALUES (?, ?)", p, n).Exec())
			expected = append(expected, fmt.Sprint(p, n))
		}
	}
	var got []string
	var p, n int
	iter := session.Query("SELECT p, c FROM pages").PageSize(4).Iter()
	c.equal("first page", iter.NumRows(), 4)
	c.holds("paging state", len(iter.PageState()) > 0, "none")
	for iter.Scan(&p, &n) {
		got = append(got, fmt.Sprint(p, n))
	}
	c.noError("pages", iter.Close())
	sort.Strings(got)
	sort.Strings(expected)
	c.equal("all rows", got, expected)
	got = nil
	iter = session.Query("SELECT c FROM pages WHERE p = ? ORDER BY c DESC", 3).PageSize(3).Iter()
	for iter.Scan(&n) {
		got = append(got, fmt.Sprint(n))
	}
	c.noError("reversed", iter.Close())
	c.equal("reversed", strings.Join(got, " "), "10 9 8 7 6 5 4 3 2 1 0")
}

func indexes(c *checks, session *gocql.Session) {
	c.noError("create animals", session.Query("CREATE TABLE animals (n int PRIMARY KEY, kind text, age int, place vector<float, 2>)").Exec())
	for _, index := range []string{"by_kind ON animals (kind) USING 'sai'", "by_age ON animals (age) USING 'sai'",
		"by_place ON animals (place) USING 'sai' WITH OPTIONS = {'similarity_function': 'euclidean'}"} {
		c.noError("create index", session.Query("CREATE INDEX "+index).Exec())
	}
	var owls []int
	for n := range 40 {
		kind := "fox"
		if n%3 == 0 {
			kind = "owl"
			owls = append(owls, n)
		}
		insert := session.Query("INSERT INTO animals (n, kind, age, place) VALUES (?, ?, ?, ?)", n, kind, n, []float32{float32(n), 0})
		c.noError("insert animal", insert.Exec())
	}
	found := numbers(c, session.Query("SELECT n FROM animals WHERE kind = ?", "owl").PageSize(5).Iter())
	sort.Ints(found)
	c.equal("equality, in pages", found, owls)
	found = numbers(c, session.Query("SELECT n FROM animals WHERE kind = ? AND age > ? AND age <= ?", "owl", 6, 15).Iter())
	sort.Ints(found)
	c.equal("two columns", found, []int{9, 12, 15})
	nearest := session.Query("SELECT n FROM animals ORDER BY place ANN OF ? LIMIT 3", []float32{7.25, 0})
	c.equal("nearest vectors", numbers(c, nearest.Iter()), []int{7, 8, 6})
	c.noError("drop index", session.Query("DROP INDEX by_kind").Exec())
	err := session.Query("SELECT n FROM animals WHERE kind = ?", "owl").Exec()
	c.holds("after DROP INDEX", err != nil && strings.Contains(err.Error(), "ALLOW FILTERING"), err)
}

func numbers(c *checks, iter *gocql.Iter) []int {
	var all []int
	var n int
	for iter.Scan(&n) {
		all = append(all, n)
	}
	c.noError("rows", iter.Close())
	return all
}

func metadata(c *checks, session *gocql.Session) {
	c.noError("create described", session.Query(`CREATE TABLE described (a int, b text, c timeuuid, d text static, "E f" int, PRIMARY KEY ((a, b), c))
		WITH CLUSTERING ORDER BY (c DESC)`).Exec())
	c.noError("agreement", session.AwaitSchemaAgreement(context.Background()))
	described, err := session.KeyspaceMetadata(keyspace)
	if !c.noError("keyspace metadata", err) {
		return
	}
	// The driver reads the schema anew a while after the event.
	for deadline := time.Now().Add(20 * time.Second); described.Tables["described"] == nil && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond)
		if described, err = session.KeyspaceMetadata(keyspace); err != nil {
			c.noError("keyspace metadata", err)
			return
		}
	}
	table := described.Tables["described"]
	if table == nil {
		c.holds("table metadata", false, "no table described")
		return
	}
	c.equal("partition key", []string{table.PartitionKey[0].Name, table.PartitionKey[1].Name}, []string{"a", "b"})
	c.equal("clustering", table.ClusteringColumns[0].Name, "c")
	c.equal("columns", len(table.Columns), 5)
	c.holds("user type", described.UserTypes["address"] != nil, "no type address")
}

func badStatements(c *checks, session *gocql.Session) {
	c.noError("create errors", session.Query("CREATE TABLE errors (k int PRIMARY KEY, v int)").Exec())
	for _, bad := range []struct {
		cql  string
		code int
		text string
	}{
		{"SELEC 1", gocql.ErrCodeSyntax, "line 1:0 no viable alternative at input 'SELEC'"},
		{"SELECT * FROM nosuch", gocql.ErrCodeInvalid, "table nosuch does not exist"},
		{"SELECT * FROM errors WHERE v = 1", gocql.ErrCodeInvalid, "ALLOW FILTERING"},
		{"CREATE TABLE errors (k int PRIMARY KEY)", gocql.ErrCodeAlreadyExists, "already exist"},
		{"CREATE KEYSPACE x WITH replication = {'class': 'NoSuch'}", gocql.ErrCodeConfig, "NoSuch"},
	} {
		err := session.Query(bad.cql).Exec()
		var refused gocql.RequestError
		right := errors.As(err, &refused) && refused.Code() == bad.code && strings.Contains(refused.Message(), bad.text)
		c.holds(bad.cql, right, err)
	}
	err := session.Query("SELECT * FROM errors WHERE k = 1").Consistency(gocql.Two).Exec()
	var unavailable *gocql.RequestErrUnavailable
	c.holds("unavailable", errors.As(err, &unavailable) && unavailable.Required == 2 && unavailable.Alive == 1, err)
}

func concurrency(c *checks, session *gocql.Session) {
	c.noError("create many", session.Query("CREATE TABLE many (k int PRIMARY KEY, v text)").Exec())
	var group sync.WaitGroup
	wrong := make(chan string, 1000)
	for k := range 1000 {
		group.Add(1)
		go func() {
			defer group.Done()
			if err := session.Query("INSERT INTO many (k, v) VALUES (?, ?)", k, fmt.Sprint("value ", k)).Exec(); err != nil {
				wrong <- err.Error()
				return
			}
			var value string
			if err := session.Query("SELECT v FROM many WHERE k = ?", k).Scan(&value); err != nil || value != fmt.Sprint("value ", k) {
				wrong <- fmt.Sprint(value, err)
			}
		}()
	}
	group.Wait()
	close(wrong)
	c.equal("1000 at once", len(wrong), 0)
}
