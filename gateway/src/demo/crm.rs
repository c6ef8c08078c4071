//! The demo CRM: tools that read, one that moves money, one that destroys. A policy author sees at
//! a glance why the three kinds should not be granted alike.

mod records;

use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    CallToolResult, ContentBlock, GetPromptRequestParams, GetPromptResponse, GetPromptResult,
    Implementation, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    PaginatedRequestParams, Prompt, PromptArgument, PromptMessage, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, Resource, ResourceContents, ResourceTemplate, Role,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, schemars, tool, tool_handler, tool_router};
use serde::Deserialize;

use records::{Customer, Euro, Order, Records, Status};

const CUSTOMER_URI: &str = "crm://customers/";

/// The CRM server; clones share the same records.
#[derive(Clone, Debug)]
pub(super) struct Crm {
    tools: ToolRouter<Self>,
    records: Arc<Mutex<Records>>,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct CustomerId {
    /// Customer id, such as c-1001.
    id: String,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct CustomerQuery {
    /// Part of an id, a name, an email address or a city; case does not matter.
    query: String,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct OrderQuery {
    /// Only orders of this customer, such as c-1001.
    customer: Option<String>,
    /// Only orders that stand here.
    status: Option<Status>,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Refund {
    /// Order id, such as o-5001.
    order: String,
    /// Amount in euros, at most what is left of the order.
    #[schemars(range(min = 0.01, max = 1_000_000))]
    amount: f64,
    /// Why the customer gets the money back.
    reason: Option<String>,
}

#[tool_router(router = tools)]
impl Crm {
    pub(super) fn new() -> Self {
        Self { tools: Self::tools(), records: Arc::new(Mutex::new(Records::new())) }
    }

    #[tool(
        title = "Get customer",
        description = "Returns one customer by id: name, email, plan, city and customer since.",
        output_schema = rmcp::handler::server::tool::schema_for_type::<Customer>(),
        annotations(read_only_hint = true, open_world_hint = false)
    )]
    fn get_customer(
        &self,
        Parameters(CustomerId { id }): Parameters<CustomerId>,
    ) -> CallToolResult {
        let Some(customer) = self.records.lock().customer(&id).cloned() else {
            return no_customer(&id);
        };
        let mut result = CallToolResult::success(vec![ContentBlock::text(customer.to_string())]);
        result.structured_content = serde_json::to_value(customer).ok();
        result
    }

    #[tool(
        title = "Search customers",
        description = "Finds customers by part of their id, name, email or city. One line for each.",
        annotations(read_only_hint = true, open_world_hint = false)
    )]
    fn search_customers(
        &self,
        Parameters(CustomerQuery { query }): Parameters<CustomerQuery>,
    ) -> CallToolResult {
        let records = self.records.lock();
        let lines: Vec<_> = records.search(&query).into_iter().map(Customer::to_string).collect();
        listing(&lines, "No customer matches.")
    }

    #[tool(
        title = "Search orders",
        description = "Lists orders, all of them or those of one customer or one status. One line for each.",
        annotations(read_only_hint = true, open_world_hint = false)
    )]
    fn search_orders(
        &self,
        Parameters(OrderQuery { customer, status }): Parameters<OrderQuery>,
    ) -> CallToolResult {
        let records = self.records.lock();
        let found = records.orders(customer.as_deref(), status);
        let lines: Vec<_> = found.into_iter().map(Order::to_string).collect();
        listing(&lines, "No order matches.")
    }

    #[tool(
        title = "Refund an order",
        description = "Pays back part or all of an order to the customer. The money is gone at once.",
        annotations(
            read_only_hint = false,
            destructive_hint = true,
            idempotent_hint = false,
            open_world_hint = false
        )
    )]
    fn refund(
        &self,
        Parameters(Refund { order, amount, reason }): Parameters<Refund>,
    ) -> CallToolResult {
        let Some(amount) = Euro::from_amount(amount) else {
            return failure(format!("{amount} is not an amount between 0.01 and 1000000 EUR."));
        };
        match self.records.lock().refund(&order, amount) {
            Ok(total) => {
                let reason = reason.map(|reason| format!(" Reason: {reason}.")).unwrap_or_default();
                success(format!(
                    "Refunded {amount} on order {order}.{reason} Refunded since start: {total}."
                ))
            }
            Err(refusal) => failure(refusal.to_string()),
        }
    }

    #[tool(
        title = "Delete a customer",
        description = "Deletes a customer for good. Orders stay in the books.",
        annotations(
            read_only_hint = false,
            destructive_hint = true,
            idempotent_hint = true,
            open_world_hint = false
        )
    )]
    fn delete_customer(
        &self,
        Parameters(CustomerId { id }): Parameters<CustomerId>,
    ) -> CallToolResult {
        match self.records.lock().delete(&id) {
            Some(customer) => success(format!("Deleted customer {id} ({}).", customer.name)),
            None => no_customer(&id),
        }
    }
}

#[tool_handler(router = self.tools)]
impl ServerHandler for Crm {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_prompts()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(
                Implementation::new("portcullis-demo-crm", env!("CARGO_PKG_VERSION"))
                    .with_title("Demo CRM"),
            )
            .with_instructions(
                "A demo CRM with customers c-1001 to c-1003 and orders o-5001 to o-5004.",
            )
    }

    async fn list_resources(
        &self,
        _page: Option<PaginatedRequestParams>,
        _cx: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resource = Resource::new(format!("{CUSTOMER_URI}c-1001"), "c-1001")
            .with_title("Customer c-1001")
            .with_description("The record of one customer, as JSON.")
            .with_mime_type("application/json");
        Ok(ListResourcesResult::with_all_items(vec![resource]))
    }

    async fn list_resource_templates(
        &self,
        _page: Option<PaginatedRequestParams>,
        _cx: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let template = ResourceTemplate::new(format!("{CUSTOMER_URI}{{id}}"), "customer")
            .with_title("Customer")
            .with_description("The record of any customer, as JSON.")
            .with_mime_type("application/json");
        Ok(ListResourceTemplatesResult::with_all_items(vec![template]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _cx: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri;
        let customer = uri
            .strip_prefix(CUSTOMER_URI)
            .and_then(|id| self.records.lock().customer(id).cloned())
            .ok_or_else(|| {
                ErrorData::resource_not_found(format!("there is no resource {uri}"), None)
            })?;
        let text = serde_json::to_string(&customer)
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let contents = ResourceContents::text(text, uri).with_mime_type("application/json");
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    async fn list_prompts(
        &self,
        _page: Option<PaginatedRequestParams>,
        _cx: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let order = PromptArgument::new("order")
            .with_description("Order id, such as o-5001.")
            .with_required(true);
        let prompt = Prompt::new(
            "refund_reply",
            Some("Drafts the reply that tells a customer of a refund."),
            Some(vec![order]),
        )
        .with_title("Refund reply");
        Ok(ListPromptsResult::with_all_items(vec![prompt]))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _cx: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if request.name != "refund_reply" {
            return Err(ErrorData::invalid_params(
                format!("there is no prompt {}", request.name),
                None,
            ));
        }
        let arguments = request.arguments.unwrap_or_default();
        let Some(id) = arguments.get("order").and_then(|value| value.as_str()) else {
            return Err(ErrorData::invalid_params("refund_reply needs the argument order", None));
        };
        let records = self.records.lock();
        let Some(order) = records.order(id) else {
            return Err(ErrorData::invalid_params(format!("there is no order {id}"), None));
        };
        let name =
            records.customer(order.customer).map_or("the customer", |customer| &customer.name);
        let text = format!(
            "Write a short, friendly reply to {name} about the refund on order {id} ({}, {}). \
             Name the amount and say that it arrives within five working days.",
            order.item, order.total
        );
        let message = PromptMessage::new_text(Role::User, text);
        Ok(GetPromptResult::new(vec![message]).with_description("A refund reply.").into())
    }
}

fn success(text: String) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

fn failure(text: String) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}

fn no_customer(id: &str) -> CallToolResult {
    failure(format!("There is no customer {id}."))
}

fn listing(lines: &[String], none: &str) -> CallToolResult {
    success(if lines.is_empty() { none.to_owned() } else { lines.join("\n") })
}
