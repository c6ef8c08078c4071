//! Sizes, headers and servers that come back.

use super::*;

#[tokio::test]
async fn an_answer_has_a_largest_size_and_keeps_its_bytes_below_it() {
    for (kind, fits) in [("json", true), ("json", false), ("sse", true), ("sse", false)] {
        let text = "x".repeat(if fits { 90_000 } else { 300_000 });
        let peer = Peer::start(move |asked| {
            let id = &asked.body["id"];
            let message = json!({"jsonrpc": "2.0", "id": id, "result": {"t": text}});
            usual(asked, false).unwrap_or_else(|| sent_as(kind, &message))
        })
        .await;
        let mut small = settings();
        small.result_bytes_max = 100_000;
        let upstreams = Upstreams::start(vec![peer.server(EraPin::Modern)], small).unwrap();
        upstreams.settle(Duration::from_secs(10)).await;
        let ending = call(&upstreams, tool("echo", "{}")).await;
        match ending {
            Ok(reply) => assert!(fits && text_len(reply) == 90_008, "{kind}"),
            Err(failure) => assert!(!fits && failure.may_have_run(), "{kind}: {failure}"),
        }
        upstreams.shutdown().await;
    }
}

fn text_len(reply: Reply) -> usize {
    text(reply).len()
}

#[tokio::test]
async fn what_the_operator_configures_never_replaces_the_gateways_headers() {
    let bad = |name: &str, url: &str| {
        let value = portcullis_policy::definition::Value::Literal("x".to_owned());
        let headers = [(name.to_owned(), value)].into();
        let transport = Transport::Http { url: url.to_owned(), headers };
        Upstreams::start(vec![server(transport, EraPin::Auto)], settings()).unwrap_err().to_string()
    };
    let url = "http://127.0.0.1:9/mcp";
    for name in ["Mcp-Method", "Host", "transfer-encoding", "MCP-Session-Id"] {
        let error = bad(name, url);
        assert_eq!(
            error,
            format!("server `s`: header `{name}` cannot be used: the gateway writes it itself")
        );
    }
    assert!(bad("a b", url).contains("it is no header name"));
    assert!(bad("a", "ftp://x/").contains("neither `http` nor `https`"));
    let error = bad("a", "http://user:secret@x/");
    assert!(error.contains("belongs into `headers`") && !error.contains("secret"), "{error}");
}

#[tokio::test]
async fn an_unreachable_server_comes_back_by_itself() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let transport =
        Transport::Http { url: format!("http://{address}/mcp"), headers: BTreeMap::new() };
    let upstreams = started(server(transport, EraPin::Auto)).await;
    assert!(matches!(offer(&upstreams).status, Status::Unreachable { .. }));
    let listener = TcpListener::bind(address).await.unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let behave = |asked: &Asked| usual(asked, false).unwrap();
            tokio::spawn(serve(stream, Default::default(), Arc::new(behave)));
        }
    });
    let mut catalogue = upstreams.catalogue();
    let ready = catalogue.wait_for(|catalogue| {
        catalogue.servers.values().all(|offer| offer.status == Status::Ready)
    });
    drop(timeout(Duration::from_secs(10), ready).await.unwrap());
    upstreams.shutdown().await;
}
