package main

import (
	"bytes"
	"path/filepath"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// overTLS is a cluster whose node must have a certificate of the authority. With a certificate the client shows one.
func overTLS(host string, port int, directory string, certificate bool, password string) *gocql.ClusterConfig {
	cluster := gocql.NewCluster(host)
	cluster.Port = port
	cluster.Timeout = 30 * time.Second
	cluster.ConnectTimeout = 30 * time.Second
	cluster.Consistency = gocql.One
	cluster.SslOpts = &gocql.SslOptions{CaPath: filepath.Join(directory, "authority.pem"), EnableHostVerification: true}
	if certificate {
		cluster.SslOpts.CertPath = filepath.Join(directory, "client.pem")
		cluster.SslOpts.KeyPath = filepath.Join(directory, "client.key")
	}
	if password != "" {
		cluster.Authenticator = gocql.PasswordAuthenticator{Username: "cassandra", Password: password}
	}
	return cluster
}

// tlsScript writes and reads values over TLS as a client with a certificate or a password, and is refused without.
func tlsScript(c *checks, host string, port int, directory, login string) {
	certificate, password, wrong := login == "certificate", "", ""
	if !certificate {
		password, wrong = "cassandra", "wrong"
	}
	session, err := overTLS(host, port, directory, certificate, password).CreateSession()
	if !c.noError("connect", err) {
		return
	}
	defer session.Close()
	run := func(statement string, values ...any) bool {
		return c.noError(statement, session.Query(statement, values...).Exec())
	}
	run("CREATE KEYSPACE IF NOT EXISTS tls_go WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
	run("CREATE TABLE IF NOT EXISTS tls_go.t (k int PRIMARY KEY, v blob)")
	for key, size := range []int{1, 16_384, 4_000_000} {
		value := bytes.Repeat([]byte{byte(key + 1)}, size)
		if run("INSERT INTO tls_go.t (k, v) VALUES (?, ?)", key, value) {
			var got []byte
			c.noError("read", session.Query("SELECT v FROM tls_go.t WHERE k = ?", key).Scan(&got))
			c.holds("value", bytes.Equal(got, value), len(got))
		}
	}
	_, err = overTLS(host, port, directory, false, wrong).CreateSession()
	c.holds("a client without its login is refused", err != nil, "it was accepted")
	plain := overTLS(host, port, directory, false, password)
	plain.SslOpts = nil
	plain.ConnectTimeout = 5 * time.Second
	_, err = plain.CreateSession()
	c.holds("a client without TLS is refused", err != nil, "it was accepted")
}
